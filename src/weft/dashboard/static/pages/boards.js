// Pages of libraries: trials, RL runs, trainings, datasets and what is served, as they publish them (weft.util.board).
import { html } from "/vendor/preact-htm.module.js";
import { bytes, clock, number, seconds, short, usePoll } from "/data.js";
import { Card, Chart, Problem, State, Table } from "/parts.js";

const shorter = (value) => (typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value);

const LOG_RATIO = 100;  // what spans more has a logarithmic axis

function parallel(board) {
  const keys = [...new Set(board.trials.flatMap((trial) => Object.keys(trial.config)))].slice(0, 12);
  const axes = [...keys.map((key) => [key, (trial) => trial.config[key]]), [board.metric, (trial) => trial.best]];
  const done = board.trials.filter((trial) => typeof trial.best === "number");
  const bests = done.map((trial) => trial.best), best = bestOf(board);
  const better = board.mode === "min" ? ["#2e8b57", "#ddd"] : ["#ddd", "#2e8b57"];
  return { notMerge: true, tooltip: {},
    parallelAxis: axes.map(([name, of], dim) => {
      const values = done.map(of), numeric = values.every((value) => typeof value === "number");
      const [least, most] = numeric ? [Math.min(...values), Math.max(...values)] : [0, 0];
      const type = !numeric ? "category" : least > 0 && most / least >= LOG_RATIO ? "log" : "value";
      return { dim, name: String(name).slice(0, 24), type, scale: true,
        data: numeric ? undefined : [...new Set(values.map(String))] };
    }),
    visualMap: { show: false, dimension: axes.length - 1, min: Math.min(...bests), max: Math.max(...bests), inRange: { color: better } },
    parallel: { left: 40, right: 60, top: 40, bottom: 20 },
    series: [{ type: "parallel", lineStyle: { width: 2, opacity: 0.7 }, data: done.map((trial) => ({
      name: trial.id, lineStyle: trial === best ? { width: 5, opacity: 1 } : undefined,
      value: axes.map(([, of]) => {
        const value = of(trial);
        return typeof value === "number" ? value : String(value);
      }) })) }] };
}

const bestOf = (board) => board.trials.filter((trial) => typeof trial.best === "number").reduce((best, trial) =>
  (best === null || (board.mode === "min" ? trial.best < best.best : trial.best > best.best) ? trial : best), null);
const said = (config) => Object.entries(config).map(([key, one]) => `${key}=${shorter(one)}`).join(", ");

const curves = (runs, axis) => ({ notMerge: true, grid: { left: 60, right: 20, top: 36, bottom: 40 },
  legend: { type: "scroll", top: 4 }, tooltip: { trigger: "axis" },
  xAxis: { type: "value", name: axis, nameLocation: "middle", nameGap: 24 }, yAxis: { type: "value", scale: true },
  series: runs.map(([name, data]) => ({ name, type: "line", showSymbol: data.length < 30, data })) });

const over = (runs, unit) => ({ ...curves(runs, ""), xAxis: { type: "time", axisLabel: { hideOverlap: true } },
  yAxis: { type: "value", scale: true, axisLabel: { formatter: unit } } });
const inMs = (points) => points.map(([at, value]) => [at * 1000, value]);

function Boards({ page, empty, Board }) {
  const { value, error } = usePoll(`boards?page=${page}`, 2000);
  if (!value) return html`<div><${Problem} text=${error} /></div>`;
  return html`<div><${Problem} text=${error} />${value.boards.length ? value.boards.map((row) =>
    html`<section key=${row.name}>${page === "serve" ? null : html`<h2>${row.name}</h2>`}<${Board} board=${row.board} /></section>`) : html`<p class="muted">${empty}</p>`}</div>`;
}

function Experiment({ board }) {
  const measured = board.trials.filter((trial) => typeof trial.best === "number"), best = bestOf(board);
  const runs = board.trials.filter((trial) => trial.curve && trial.curve.length).slice(-40).map((trial) => [trial.id, trial.curve]);
  return html`<p>${board.trials.length === 1 ? "1 trial" : `${number(board.trials.length)} trials`}: ${Object.entries(board.trials.reduce((all, trial) => ({ ...all, [trial.state]: (all[trial.state] || 0) + 1 }), {}))
      .map(([name, count]) => `${count} ${name}`).join(", ")}; ${board.metric} (${board.mode})</p>
    ${best ? html`<p>best: trial ${best.id}, ${board.metric} ${shorter(best.best)} with ${said(best.config)}</p>` : null}
    <div class="charts">
      ${measured.length ? html`<article><${Chart} option=${parallel(board)} says=${`parallel coordinates of ${measured.length} trials`} /></article>` : null}
      ${runs.length ? html`<article><${Chart} option=${curves(runs, "iteration")} says=${`learning curves of ${runs.length} trials`} /></article>` : null}
    </div>
    <${Table} caption="Trials" rows=${board.trials} columns=${[
      ["trial", (trial) => trial.id], ["state", (trial) => html`<${State} of=${trial.state} />`, (trial) => trial.state],
      [board.metric || "metric", (trial) => shorter(trial.best), (trial) => trial.best ?? -Infinity],
      ["iterations", (trial) => trial.iterations], ["time", (trial) => seconds(trial.seconds), (trial) => trial.seconds],
      ["config", (trial) => said(trial.config)],
      ["error", (trial) => trial.error]]} />`;
}

function Run({ board }) {
  return html`<p>${board.algorithm} on ${board.environment}: ${number(board.steps)} steps, ${number(Math.round(board.steps_per_second || 0))} steps/s</p>
    <div class="charts">
      <article><${Chart} option=${curves([["reward", board.rewards]], "steps")} says="mean reward over steps" /></article>
      <article><${Chart} option=${curves([["steps/s", board.throughput]], "steps")} says="throughput over steps" /></article>
    </div>`;
}

function Training({ board }) {
  const names = Object.keys(board.curves);
  return html`<div class="cards">
      <${Card} title="state" note=${board.error}><${State} of=${board.state} /><//>
      <${Card} title="workers" note=${board.backend}>${number(board.workers.length)}<//>
      <${Card} title="reports" note=${seconds(board.seconds)}>${number(board.reports)}<//>
      <${Card} title="started anew" note="workers were lost or came">${number(board.restarts)}<//>
    </div>
    <div class="charts">${names.map((name) => html`<article key=${name}><${Chart} option=${curves([[name, board.curves[name]]], "report")}
      says=${`${name} over reports, now ${shorter(board.last[name])}`} /></article>`)}</div>
    <div class="tables">
      <${Table} caption="Last report" rows=${Object.entries(board.last)} columns=${[["metric", (row) => row[0]], ["value", (row) => String(shorter(row[1])), (row) => row[1]]]} />
      <${Table} caption="Workers" rows=${board.workers} columns=${[["rank", (row) => row.rank], ["node", (row) => short(row.node_id)]]} />
      <${Table} caption="Checkpoints" rows=${[...board.checkpoints].reverse()} empty="None yet." columns=${[
        ["checkpoint", (row) => row.name], ["report", (row) => row.report], ["when", (row) => clock(row.time_s), (row) => row.time_s]]} />
    </div><p class="muted">in ${board.path}</p>`;
}

function Dataset({ board }) {
  const last = board.operators[board.operators.length - 1];
  return html`<div class="cards">
      <${Card} title="state" note=${seconds(board.seconds)}><${State} of=${board.state} /><//>
      <${Card} title="rows" note=${last ? `${number(Math.round(last.rows_per_s))} rows/s` : ""}>${number(last ? last.rows : 0)}<//>
      <${Card} title="tasks under way">${number(board.running)}<//>
      <${Card} title="waits to be taken" note=${`at most ${bytes(board.most_held_bytes)}, room for ${bytes(board.budget_bytes)}`}>${bytes(board.held_bytes)}<//>
    </div>
    <div class="charts">
      <article><${Chart} option=${curves([["rows/s", board.rate]], "seconds")} says="rows per second that leave the last operator" /></article>
      <article><${Chart} option=${{ ...curves([["waits to be taken", board.held]], "seconds"), yAxis: { type: "value", axisLabel: { formatter: bytes } } }} says="bytes that wait to be taken" /></article>
    </div>
    <${Table} caption="Operators" rows=${board.operators} columns=${[
      ["operator", (row) => row.name], ["tasks", (row) => row.tasks], ["rows", (row) => number(row.rows), (row) => row.rows],
      ["rows/s", (row) => number(Math.round(row.rows_per_s)), (row) => row.rows_per_s],
      ["bytes", (row) => bytes(row.size_bytes), (row) => row.size_bytes], ["time in tasks", (row) => seconds(row.seconds), (row) => row.seconds]]} />
    ${Object.entries(board.skipped).map(([what, count]) => html`<p>${number(count)} skipped by ${what}</p>`)}`;
}

const StreamStages = ({ board }) => html`<div class="cards">
      <${Card} title="state" note=${seconds(board.seconds)}><${State} of=${board.state} /><//>
      <${Card} title="events read" note=${`${number(Math.round(board.events_per_s))} events/s`}>${number(board.stages[0].events_in)}<//>
      <${Card} title="checkpoints">${number(board.checkpoints)}<//>
      <${Card} title="restarts" note="from the last checkpoint">${number(board.restarts)}<//>
    </div>
    <div class="charts">
      <article><${Chart} option=${curves([["events/s", board.rate]], "seconds")} says="events per second that the source reads" /></article>
    </div>
    <${Table} caption="Stages" rows=${board.stages} columns=${[
      ["stage", (row) => row.name], ["subtasks", (row) => row.parallelism],
      ["events in", (row) => number(row.events_in), (row) => row.events_in], ["events out", (row) => number(row.events_out), (row) => row.events_out],
      ["events/s", (row) => number(Math.round(row.events_per_s)), (row) => row.events_per_s], ["too late", (row) => number(row.late), (row) => row.late],
      ["busy", (row) => seconds(row.busy_s), (row) => row.busy_s]]} />`;

const DatasetOrStream = ({ board }) => (board.stages ? html`<${StreamStages} board=${board} />` : html`<${Dataset} board=${board} />`);

function Deployment({ row }) {
  const slowest = row.replicas.map((one) => one.p95_s).filter((value) => typeof value === "number");
  return html`<h3>${row.name} <${State} of=${row.status} /></h3>
    ${row.message ? html`<p class="muted">${row.message}</p>` : null}
    <div class="cards">
      <${Card} title="replicas" note=${`${row.target} wanted`}>${number(row.replicas.length)}<//>
      <${Card} title="requests/s">${number(Math.round(10 * row.requests_per_s) / 10)}<//>
      <${Card} title="under way" note=${`at most ${number(row.limit)} a replica`}>${number(row.ongoing)}<//>
      <${Card} title="queued" note="held back by callers">${number(row.waiting)}<//>
      <${Card} title="p95 latency">${slowest.length ? seconds(Math.max(...slowest)) : "–"}<//>
    </div>
    <div class="charts">
      <article><${Chart} option=${over([["requests/s", inMs(row.rate)]], (value) => number(value))} says=${`requests per second of ${row.name}`} /></article>
      ${row.p95.length ? html`<article><${Chart} option=${over([["p95 latency", inMs(row.p95)]], seconds)} says=${`p95 latency of ${row.name}`} /></article>` : null}
    </div>
    <${Table} caption=${`Replicas of ${row.name}`} rows=${row.replicas} columns=${[
      ["replica", (one) => one.id], ["state", (one) => html`<${State} of=${one.state} />`, (one) => one.state], ["under way", (one) => one.ongoing],
      ["answered", (one) => number(one.served), (one) => one.served], ["p50", (one) => seconds(one.p50_s), (one) => one.p50_s],
      ["p95", (one) => seconds(one.p95_s), (one) => one.p95_s], ["p99", (one) => seconds(one.p99_s), (one) => one.p99_s]]} />`;
}

const Applications = ({ board }) => html`${board.applications.map((app) => html`<section key=${app.name}>
  <h2>${app.name}${app.route_prefix ? html` <span class="muted">at ${app.route_prefix}</span>` : ""}</h2>
  ${app.deployments.map((row) => html`<${Deployment} key=${row.name} row=${row} />`)}</section>`)}`;

export const Tune = () => html`<${Boards} page="tune" Board=${Experiment} empty="No experiment of weft.tune runs, or has run, in this session." />`;
export const Rl = () => html`<${Boards} page="rl" Board=${Run} empty="No algorithm of weft.rl runs, or has run, in this session." />`;
export const Train = () => html`<${Boards} page="train" Board=${Training} empty="No training of weft.train runs, or has run, in this session." />`;
export const Data = () => html`<${Boards} page="data" Board=${DatasetOrStream} empty="No dataset or stream of weft.data has run for more than a second in this session." />`;
export const Serve = () => html`<${Boards} page="serve" Board=${Applications} empty="No application of weft.serve runs in this session." />`;
