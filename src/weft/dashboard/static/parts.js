// What the pages are made of: tables, charts, states. All text goes through the template, which escapes it.
import { html, useEffect, useRef, useState } from "/vendor/preact-htm.module.js";
import { plain } from "/data.js";

const GOOD = /^(alive|ok|running|finished|created|succeeded|leased|idle|actor|terminated|healthy)$/i;
const BAD = /^(dead|failed|lost|removed|error|unhealthy)$/i;

export const State = ({ of }) =>
  html`<span class=${`state ${GOOD.test(of) ? "good" : BAD.test(of) ? "bad" : "busy"}`}>${String(of)}</span>`;

export const Problem = ({ text }) => (text ? html`<p class="problem" role="alert">${text}</p>` : null);

export const Card = ({ title, children, note }) =>
  html`<article><small>${title}</small><span class="big">${children}</span><small>${note || ""}</small></article>`;

const LONGEST = 300;

export function Cell({ value }) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value !== "string" && typeof value !== "number") return value;
  const text = plain(String(value), LONGEST);
  return text.length > 40 ? html`<span class="cut" title=${text}>${text}</span>` : text;
}

// columns: [title, (row) => value, (row) => key to sort by]. Sorts at a click on a title, also by keyboard.
export function Table({ caption, columns, rows, most = 200, empty = "There are none." }) {
  const [order, setOrder] = useState({ at: -1, up: true });
  let shown = rows || [];
  if (order.at >= 0) {
    const key = columns[order.at][2] || columns[order.at][1];
    shown = [...shown].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return (x > y ? 1 : x < y ? -1 : 0) * (order.up ? 1 : -1);
    });
  }
  const more = shown.length - most;
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table><caption class="muted">${caption}${rows ? ` (${rows.length})` : ""}</caption>
      <thead><tr>${columns.map(([title], at) => html`<th scope="col"
        aria-sort=${order.at !== at ? "none" : order.up ? "ascending" : "descending"}>
        <button type="button" onClick=${() => setOrder({ at, up: order.at === at ? !order.up : true })}>
          ${title}${order.at === at ? (order.up ? " ▲" : " ▼") : ""}</button></th>`)}</tr></thead>
      <tbody>${shown.slice(0, most).map((row) => html`<tr>${columns.map(([, value]) =>
        html`<td><${Cell} value=${value(row)} /></td>`)}</tr>`)}
        ${shown.length ? null : html`<tr><td colspan=${columns.length} class="muted">${rows ? empty : "…"}</td></tr>`}
      </tbody></table>
    ${more > 0 ? html`<p class="muted">and ${more} more</p>` : null}</div>`;
}

export const isDark = () => document.documentElement.dataset.theme === "dark";

// An ECharts chart; `says` is what a screen reader hears in its place.
export function Chart({ option, says, tall, onClick }) {
  const place = useRef(null), chart = useRef(null), click = useRef(null);
  click.current = onClick;
  useEffect(() => {
    const theme = isDark() ? "dark" : undefined;
    const made = (chart.current = window.echarts.init(place.current, theme, { renderer: "canvas" }));
    made.on("click", (what) => click.current && click.current(what));
    const fit = new ResizeObserver(() => made.resize());
    fit.observe(place.current);
    return () => { fit.disconnect(); made.dispose(); };
  }, [isDark()]);
  useEffect(() => {
    const common = { backgroundColor: "transparent", animation: false,
      tooltip: { renderMode: "richText", confine: true, ...(option.tooltip || {}) } };
    chart.current.setOption({ ...option, ...common }, { notMerge: option.notMerge || false });
  });
  return html`<div class=${`chart${tall ? " tall" : ""}`} ref=${place} role="img" aria-label=${says}></div>`;
}

const SHORTEST_MS = 60_000;  // of an axis: one point has no length of its own

// Lines over time: series is {name: [[time in ms, value], ...]}.
export function Lines({ title, series, unit = (value) => String(value), says, max, whole }) {
  const names = Object.keys(series);
  const option = {
    title: { text: title, textStyle: { fontSize: 12 }, left: 4, top: 0 },
    grid: { left: 56, right: 12, top: names.length > 1 ? 44 : 28, bottom: 24 },
    legend: names.length > 1 ? { type: "scroll", top: 18, textStyle: { fontSize: 10 } } : undefined,
    tooltip: { trigger: "axis", valueFormatter: unit },
    xAxis: { type: "time", splitNumber: 4, min: (range) => Math.min(range.min, range.max - SHORTEST_MS), axisLabel: { hideOverlap: true, fontSize: 10 } },
    yAxis: { type: "value", min: 0, max, minInterval: whole ? 1 : 0, axisLabel: { formatter: unit } },
    series: names.map((name) => ({ name, type: "line", showSymbol: false, data: series[name] })),
  };
  return html`<article><${Chart} option=${option} says=${says || title} /></article>`;
}
