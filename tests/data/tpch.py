"""TPC-H: its 22 queries with their validation parameters, and rows of its shape, the same at every run.

The rows are not those of the benchmark's own generator: they are made so that each query of a small scale still finds
some, and have the keys, types, ranges and texts that the queries ask for. Prices are decimals: answers are exact.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import polars as pl

_NATIONS = {
    "AFRICA": "ALGERIA ETHIOPIA KENYA MOROCCO MOZAMBIQUE",
    "AMERICA": "ARGENTINA BRAZIL CANADA PERU UNITED_STATES",
    "ASIA": "INDIA INDONESIA JAPAN CHINA VIETNAM",
    "EUROPE": "FRANCE GERMANY ROMANIA RUSSIA UNITED_KINGDOM",
    "MIDDLE EAST": "EGYPT IRAN IRAQ JORDAN SAUDI_ARABIA",
}
_COLORS = (
    "almond azure beige blue brown coral forest frosted green honeydew ivory khaki lime maroon navy orchid".split()
)
_TYPES = [
    f"{size} {finish} {metal}"
    for size in "STANDARD SMALL MEDIUM LARGE ECONOMY PROMO".split()
    for finish in "ANODIZED BURNISHED PLATED POLISHED BRUSHED".split()
    for metal in "TIN NICKEL BRASS STEEL COPPER".split()
]
_CONTAINERS = [f"{size} {kind}" for size in "SM LG MED JUMBO WRAP".split() for kind in "CASE BOX BAG PKG PACK".split()]
_SEGMENTS = "AUTOMOBILE BUILDING FURNITURE MACHINERY HOUSEHOLD".split()
_PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
_MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"]
_INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
_WORDS = (
    "carefully quickly furiously special pending requests accounts deposits final ironic Customer FailureLog".split()
)
_FIRST_DAY = dt.date(1992, 1, 1)


def _cents(values: np.ndarray) -> pl.Series:
    """Money, from whole cents."""
    return (pl.Series(values.astype(np.int64)).cast(pl.Decimal(38, 2)) / 100).cast(pl.Decimal(15, 2))


def _texts(rng: np.random.Generator, rows: int, words: int) -> list[str]:
    picks = rng.integers(0, len(_WORDS), (rows, words))
    return [" ".join(_WORDS[at] for at in row) for row in picks]


def _days(numbers: np.ndarray) -> pl.Series:
    start = (_FIRST_DAY - dt.date(1970, 1, 1)).days
    return pl.Series((numbers + start).astype(np.int32)).cast(pl.Date)


def _phones(rng: np.random.Generator, nations: np.ndarray) -> list[str]:
    rest = rng.integers(100, 1000, (len(nations), 2))
    return [f"{nation + 10}-{a}-{b}" for nation, (a, b) in zip(nations, rest, strict=True)]


def tables(scale: float) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(19_92)
    regions = list(_NATIONS)
    nations = [
        (name.replace("_", " "), regions.index(region)) for region in regions for name in _NATIONS[region].split()
    ]
    made = {
        "region": pl.DataFrame({"r_regionkey": range(5), "r_name": regions, "r_comment": [""] * 5}),
        "nation": pl.DataFrame(
            {
                "n_nationkey": range(25),
                "n_name": [name for name, _ in nations],
                "n_regionkey": [region for _, region in nations],
                "n_comment": [""] * 25,
            }
        ),
    }
    suppliers, parts = max(25, int(10_000 * scale)), max(100, int(200_000 * scale))
    customers, orders = max(75, int(150_000 * scale)), max(500, int(1_500_000 * scale))
    supplied = rng.integers(0, 25, suppliers)
    made["supplier"] = pl.DataFrame(
        {
            "s_suppkey": np.arange(1, suppliers + 1),
            "s_name": [f"Supplier#{number:09}" for number in range(1, suppliers + 1)],
            "s_address": _texts(rng, suppliers, 2),
            "s_nationkey": supplied,
            "s_phone": _phones(rng, supplied),
            "s_acctbal": _cents(rng.integers(-99_999, 999_999, suppliers)),
            "s_comment": _texts(rng, suppliers, 5),
        }
    )
    colors = rng.integers(0, len(_COLORS), (parts, 3))
    retail = 90_000 + rng.integers(0, 100_000, parts)
    made["part"] = pl.DataFrame(
        {
            "p_partkey": np.arange(1, parts + 1),
            "p_name": [" ".join(_COLORS[at] for at in row) for row in colors],
            "p_mfgr": [f"Manufacturer#{at}" for at in rng.integers(1, 6, parts)],
            "p_brand": [f"Brand#{a}{b}" for a, b in rng.integers(1, 6, (parts, 2))],
            "p_type": [_TYPES[at] for at in rng.integers(0, len(_TYPES), parts)],
            "p_size": rng.integers(1, 51, parts).astype(np.int32),
            "p_container": [_CONTAINERS[at] for at in rng.integers(0, len(_CONTAINERS), parts)],
            "p_retailprice": _cents(retail),
            "p_comment": _texts(rng, parts, 2),
        }
    )
    of_part = np.repeat(np.arange(1, parts + 1), 4)
    of_supplier = (of_part + np.tile(np.arange(4), parts) * (suppliers // 4 + 1)) % suppliers + 1
    made["partsupp"] = pl.DataFrame(
        {
            "ps_partkey": of_part,
            "ps_suppkey": of_supplier,
            "ps_availqty": rng.integers(1, 10_000, len(of_part)).astype(np.int32),
            "ps_supplycost": _cents(rng.integers(100, 100_000, len(of_part))),
            "ps_comment": _texts(rng, len(of_part), 3),
        }
    )
    homes = rng.integers(0, 25, customers)
    made["customer"] = pl.DataFrame(
        {
            "c_custkey": np.arange(1, customers + 1),
            "c_name": [f"Customer#{number:09}" for number in range(1, customers + 1)],
            "c_address": _texts(rng, customers, 2),
            "c_nationkey": homes,
            "c_phone": _phones(rng, homes),
            "c_acctbal": _cents(rng.integers(-99_999, 999_999, customers)),
            "c_mktsegment": [_SEGMENTS[at] for at in rng.integers(0, 5, customers)],
            "c_comment": _texts(rng, customers, 5),
        }
    )
    made |= _orders(rng, orders, customers, parts, suppliers, retail)
    return made


def _orders(
    rng: np.random.Generator, orders: int, customers: int, parts: int, suppliers: int, retail: np.ndarray
) -> dict[str, pl.DataFrame]:
    keys = np.arange(1, orders + 1) * 4
    days = rng.integers(0, 2_400, orders)
    lines = rng.integers(1, 8, orders)
    lines[::50] = 7
    at = np.repeat(np.arange(orders), lines)
    part = rng.integers(1, parts + 1, len(at))
    supplier = (part + rng.integers(0, 4, len(at)) * (suppliers // 4 + 1)) % suppliers + 1
    quantity = np.where(
        at % 50 == 0, rng.integers(40, 51, len(at)), rng.integers(1, 51, len(at))
    )  # some orders are large
    shipped = days[at] + rng.integers(1, 122, len(at))
    received = shipped + rng.integers(1, 31, len(at))
    open_line = shipped > 1_263  # 1995-06-17, the benchmark's current day
    price = quantity * retail[part - 1]
    lineitem = pl.DataFrame(
        {
            "l_orderkey": keys[at],
            "l_partkey": part,
            "l_suppkey": supplier,
            "l_linenumber": (np.arange(len(at)) - np.repeat(np.cumsum(lines) - lines, lines) + 1).astype(np.int32),
            "l_quantity": _cents(quantity * 100),
            "l_extendedprice": _cents(price),
            "l_discount": _cents(rng.integers(0, 11, len(at))),
            "l_tax": _cents(rng.integers(0, 9, len(at))),
            "l_returnflag": np.where(open_line, "N", np.where(rng.random(len(at)) < 0.5, "R", "A")).tolist(),
            "l_linestatus": np.where(open_line, "O", "F").tolist(),
            "l_shipdate": _days(shipped),
            "l_commitdate": _days(days[at] + rng.integers(30, 91, len(at))),
            "l_receiptdate": _days(received),
            "l_shipinstruct": [_INSTRUCTIONS[number] for number in rng.integers(0, 4, len(at))],
            "l_shipmode": [_MODES[number] for number in rng.integers(0, 7, len(at))],
            "l_comment": _texts(rng, len(at), 2),
        }
    )
    some_open = np.bincount(at, open_line, orders)
    status = np.where(some_open == 0, "F", np.where(some_open == lines, "O", "P"))
    buyers = rng.integers(1, customers + 1, orders)
    buyers -= (buyers % 3 == 0) & (buyers > 1)  # a third of the customers has ordered nothing
    made = pl.DataFrame(
        {
            "o_orderkey": keys,
            "o_custkey": buyers,
            "o_orderstatus": status.tolist(),
            "o_totalprice": _cents(np.bincount(at, price, orders).astype(np.int64)),
            "o_orderdate": _days(days),
            "o_orderpriority": [_PRIORITIES[number] for number in rng.integers(0, 5, orders)],
            "o_clerk": [f"Clerk#{number:09}" for number in rng.integers(1, max(2, orders // 1_000), orders)],
            "o_shippriority": np.zeros(orders, np.int32),
            "o_comment": _texts(rng, orders, 4),
        }
    )
    return {"orders": made, "lineitem": lineitem}


def in_order(number: int) -> bool:
    """Whether the query says of all its rows in which order they come."""
    return "order by" in QUERIES[number]


QUERIES: dict[int, str] = {
    1: """
        select l_returnflag, l_linestatus, sum(l_quantity) as sum_qty, sum(l_extendedprice) as sum_base_price,
            sum(l_extendedprice * (1 - l_discount)) as sum_disc_price,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as sum_charge, avg(l_quantity) as avg_qty,
            avg(l_extendedprice) as avg_price, avg(l_discount) as avg_disc, count(*) as count_order
        from lineitem where l_shipdate <= date '1998-12-01' - interval '90' day
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus""",
    2: """
        select s_acctbal, s_name, n_name, p_partkey, p_mfgr, s_address, s_phone, s_comment
        from part, supplier, partsupp, nation, region
        where p_partkey = ps_partkey and s_suppkey = ps_suppkey and p_size = 15 and p_type like '%BRASS'
            and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'EUROPE'
            and ps_supplycost = (
                select min(ps_supplycost) from partsupp, supplier, nation, region
                where p_partkey = ps_partkey and s_suppkey = ps_suppkey and s_nationkey = n_nationkey
                    and n_regionkey = r_regionkey and r_name = 'EUROPE')
        order by s_acctbal desc, n_name, s_name, p_partkey limit 100""",
    3: """
        select l_orderkey, sum(l_extendedprice * (1 - l_discount)) as revenue, o_orderdate, o_shippriority
        from customer, orders, lineitem
        where c_mktsegment = 'BUILDING' and c_custkey = o_custkey and l_orderkey = o_orderkey
            and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate, l_orderkey limit 10""",
    4: """
        select o_orderpriority, count(*) as order_count from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-07-01' + interval '3' month
            and exists (select * from lineitem where l_orderkey = o_orderkey and l_commitdate < l_receiptdate)
        group by o_orderpriority order by o_orderpriority""",
    5: """
        select n_name, sum(l_extendedprice * (1 - l_discount)) as revenue
        from customer, orders, lineitem, supplier, nation, region
        where c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey
            and c_nationkey = s_nationkey and s_nationkey = n_nationkey and n_regionkey = r_regionkey
            and r_name = 'ASIA' and o_orderdate >= date '1994-01-01'
            and o_orderdate < date '1994-01-01' + interval '1' year
        group by n_name order by revenue desc""",
    6: """
        select sum(l_extendedprice * l_discount) as revenue from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1994-01-01' + interval '1' year
            and l_discount between 0.06 - 0.01 and 0.06 + 0.01 and l_quantity < 24""",
    7: """
        select supp_nation, cust_nation, l_year, sum(volume) as revenue from (
            select n1.n_name as supp_nation, n2.n_name as cust_nation, extract(year from l_shipdate) as l_year,
                l_extendedprice * (1 - l_discount) as volume
            from supplier, lineitem, orders, customer, nation n1, nation n2
            where s_suppkey = l_suppkey and o_orderkey = l_orderkey and c_custkey = o_custkey
                and s_nationkey = n1.n_nationkey and c_nationkey = n2.n_nationkey
                and ((n1.n_name = 'FRANCE' and n2.n_name = 'GERMANY')
                    or (n1.n_name = 'GERMANY' and n2.n_name = 'FRANCE'))
                and l_shipdate between date '1995-01-01' and date '1996-12-31') as shipping
        group by supp_nation, cust_nation, l_year order by supp_nation, cust_nation, l_year""",
    8: """
        select o_year, sum(case when nation = 'BRAZIL' then volume else 0 end) / sum(volume) as mkt_share from (
            select extract(year from o_orderdate) as o_year, l_extendedprice * (1 - l_discount) as volume,
                n2.n_name as nation
            from part, supplier, lineitem, orders, customer, nation n1, nation n2, region
            where p_partkey = l_partkey and s_suppkey = l_suppkey and l_orderkey = o_orderkey
                and o_custkey = c_custkey and c_nationkey = n1.n_nationkey and n1.n_regionkey = r_regionkey
                and r_name = 'AMERICA' and s_nationkey = n2.n_nationkey
                and o_orderdate between date '1995-01-01' and date '1996-12-31'
                and p_type = 'ECONOMY ANODIZED STEEL') as all_nations
        group by o_year order by o_year""",
    9: """
        select nation, o_year, sum(amount) as sum_profit from (
            select n_name as nation, extract(year from o_orderdate) as o_year,
                l_extendedprice * (1 - l_discount) - ps_supplycost * l_quantity as amount
            from part, supplier, lineitem, partsupp, orders, nation
            where s_suppkey = l_suppkey and ps_suppkey = l_suppkey and ps_partkey = l_partkey
                and p_partkey = l_partkey and o_orderkey = l_orderkey and s_nationkey = n_nationkey
                and p_name like '%green%') as profit
        group by nation, o_year order by nation, o_year desc""",
    10: """
        select c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) as revenue, c_acctbal, n_name, c_address,
            c_phone, c_comment
        from customer, orders, lineitem, nation
        where c_custkey = o_custkey and l_orderkey = o_orderkey and o_orderdate >= date '1993-10-01'
            and o_orderdate < date '1993-10-01' + interval '3' month and l_returnflag = 'R'
            and c_nationkey = n_nationkey
        group by c_custkey, c_name, c_acctbal, c_phone, n_name, c_address, c_comment
        order by revenue desc, c_custkey limit 20""",
    11: """
        select ps_partkey, sum(ps_supplycost * ps_availqty) as value from partsupp, supplier, nation
        where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY'
        group by ps_partkey having sum(ps_supplycost * ps_availqty) > (
            select sum(ps_supplycost * ps_availqty) * 0.0001 from partsupp, supplier, nation
            where ps_suppkey = s_suppkey and s_nationkey = n_nationkey and n_name = 'GERMANY')
        order by value desc, ps_partkey""",
    12: """
        select l_shipmode,
            sum(case when o_orderpriority = '1-URGENT' or o_orderpriority = '2-HIGH' then 1 else 0 end)
                as high_line_count,
            sum(case when o_orderpriority <> '1-URGENT' and o_orderpriority <> '2-HIGH' then 1 else 0 end)
                as low_line_count
        from orders, lineitem
        where o_orderkey = l_orderkey and l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate
            and l_shipdate < l_commitdate and l_receiptdate >= date '1994-01-01'
            and l_receiptdate < date '1994-01-01' + interval '1' year
        group by l_shipmode order by l_shipmode""",
    13: """
        select c_count, count(*) as custdist from (
            select c_custkey, count(o_orderkey) from customer left outer join orders
                on c_custkey = o_custkey and o_comment not like '%special%requests%'
            group by c_custkey) as c_orders (c_custkey, c_count)
        group by c_count order by custdist desc, c_count desc""",
    14: """
        select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
            / sum(l_extendedprice * (1 - l_discount)) as promo_revenue
        from lineitem, part
        where l_partkey = p_partkey and l_shipdate >= date '1995-09-01'
            and l_shipdate < date '1995-09-01' + interval '1' month""",
    15: """
        with revenue (supplier_no, total_revenue) as (
            select l_suppkey, sum(l_extendedprice * (1 - l_discount)) from lineitem
            where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-01-01' + interval '3' month
            group by l_suppkey)
        select s_suppkey, s_name, s_address, s_phone, total_revenue from supplier, revenue
        where s_suppkey = supplier_no and total_revenue = (select max(total_revenue) from revenue)
        order by s_suppkey""",
    16: """
        select p_brand, p_type, p_size, count(distinct ps_suppkey) as supplier_cnt from partsupp, part
        where p_partkey = ps_partkey and p_brand <> 'Brand#45' and p_type not like 'MEDIUM POLISHED%'
            and p_size in (49, 14, 23, 45, 19, 3, 36, 9)
            and ps_suppkey not in (select s_suppkey from supplier where s_comment like '%Customer%FailureLog%')
        group by p_brand, p_type, p_size order by supplier_cnt desc, p_brand, p_type, p_size""",
    17: """
        select sum(l_extendedprice) / 7.0 as avg_yearly from lineitem, part
        where p_partkey = l_partkey and p_brand = 'Brand#23' and p_container = 'MED BOX'
            and l_quantity < (select 0.2 * avg(l_quantity) from lineitem where l_partkey = p_partkey)""",
    18: """
        select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) from customer, orders, lineitem
        where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 300)
            and c_custkey = o_custkey and o_orderkey = l_orderkey
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate, o_orderkey limit 100""",
    19: """
        select sum(l_extendedprice * (1 - l_discount)) as revenue from lineitem, part
        where (p_partkey = l_partkey and p_brand = 'Brand#12'
                and p_container in ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
                and l_quantity >= 1 and l_quantity <= 1 + 10 and p_size between 1 and 5
                and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
            or (p_partkey = l_partkey and p_brand = 'Brand#23'
                and p_container in ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
                and l_quantity >= 10 and l_quantity <= 10 + 10 and p_size between 1 and 10
                and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')
            or (p_partkey = l_partkey and p_brand = 'Brand#34'
                and p_container in ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
                and l_quantity >= 20 and l_quantity <= 20 + 10 and p_size between 1 and 15
                and l_shipmode in ('AIR', 'AIR REG') and l_shipinstruct = 'DELIVER IN PERSON')""",
    20: """
        select s_name, s_address from supplier, nation
        where s_suppkey in (
                select ps_suppkey from partsupp
                where ps_partkey in (select p_partkey from part where p_name like 'forest%')
                    and ps_availqty > (
                        select 0.5 * sum(l_quantity) from lineitem
                        where l_partkey = ps_partkey and l_suppkey = ps_suppkey and l_shipdate >= date '1994-01-01'
                            and l_shipdate < date '1994-01-01' + interval '1' year))
            and s_nationkey = n_nationkey and n_name = 'CANADA'
        order by s_name""",
    21: """
        select s_name, count(*) as numwait from supplier, lineitem l1, orders, nation
        where s_suppkey = l1.l_suppkey and o_orderkey = l1.l_orderkey and o_orderstatus = 'F'
            and l1.l_receiptdate > l1.l_commitdate
            and exists (
                select * from lineitem l2 where l2.l_orderkey = l1.l_orderkey and l2.l_suppkey <> l1.l_suppkey)
            and not exists (
                select * from lineitem l3 where l3.l_orderkey = l1.l_orderkey and l3.l_suppkey <> l1.l_suppkey
                    and l3.l_receiptdate > l3.l_commitdate)
            and s_nationkey = n_nationkey and n_name = 'SAUDI ARABIA'
        group by s_name order by numwait desc, s_name limit 100""",
    22: """
        select cntrycode, count(*) as numcust, sum(c_acctbal) as totacctbal from (
            select substring(c_phone from 1 for 2) as cntrycode, c_acctbal from customer
            where substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17')
                and c_acctbal > (
                    select avg(c_acctbal) from customer
                    where c_acctbal > 0.00
                        and substring(c_phone from 1 for 2) in ('13', '31', '23', '29', '30', '18', '17'))
                and not exists (select * from orders where o_custkey = c_custkey)) as custsale
        group by cntrycode order by cntrycode""",
}


def same(mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> bool:
    """Row by row, exactly; but for floats, which a division at the end may leave one bit apart."""
    return len(mine) == len(theirs) and all(
        len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
        for one, two in zip(mine, theirs, strict=True)
    )


def _same(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, float) and theirs is not None:
        return abs(mine - float(theirs)) <= 1e-12 * max(abs(mine), abs(float(theirs)))
    return bool(mine == theirs)
