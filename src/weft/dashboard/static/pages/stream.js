// The task stream: one lane a process, one bar a task, coloured by function; gaps are gaps.
import { html, useRef, useState } from "/vendor/preact-htm.module.js";
import { colour, number, plain, seconds, usePoll } from "/data.js";
import { Chart, Problem, Table } from "/parts.js";
import { Story } from "/pages/story.js";

const KEPT = 6000;
const SPANS = [["last 5 s", 5], ["last 30 s", 30], ["last 2 min", 120], ["all", 1e9]];

function bar(params, api) {
  const lane = api.value(0), from = api.coord([api.value(1), lane]), to = api.coord([api.value(2), lane]);
  const height = Math.max(3, api.size([0, 1])[1] * (api.value(3) ? 0.25 : 0.7));
  const shape = window.echarts.graphic.clipRectByRect(
    { x: from[0], y: from[1] - height / 2, width: Math.max(1, to[0] - from[0]), height },
    { x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height });
  return shape && { type: "rect", shape, style: { fill: api.visual("color") } };
}

function drawing(slices, span) {
  const end = Math.max(...slices.map((one) => one.at + one.for));
  const shown = slices.filter((one) => one.at + one.for >= end - span);
  const lanes = [...new Set(shown.map((one) => `${one.title} ${one.pid} @${one.node}`))].sort();
  const rank = new Map(lanes.map((lane, index) => [lane, index]));
  const data = shown.map((one) => ({
    value: [rank.get(`${one.title} ${one.pid} @${one.node}`), one.at * 1000, (one.at + one.for) * 1000, one.kind === "wait" ? 1 : 0],
    name: one.name, task: one.task, length: one.for, status: one.status,
    itemStyle: { color: one.kind === "wait" ? "rgba(128,128,128,.45)" : one.status === "failed" ? "#c0392b" : colour(one.name) },
  }));
  return {
    grid: { left: 150, right: 20, top: 10, bottom: 60 },
    xAxis: { type: "time", axisLabel: { hideOverlap: true } },
    yAxis: { type: "category", data: lanes, axisLabel: { width: 135, overflow: "truncate", fontSize: 10 } },
    dataZoom: [{ type: "inside", filterMode: "weakFilter" }, { type: "slider", height: 18, bottom: 8, filterMode: "weakFilter" }],
    tooltip: { formatter: ({ data: one }) => `${plain(one.name, 200)}\n${seconds(one.length)} ${one.status}` },
    series: [{ type: "custom", renderItem: bar, data, encode: { x: [1, 2], y: 0 } }],
  };
}

function byFunction(slices) {
  const found = new Map();
  for (const one of slices) {
    if (one.kind === "wait") continue;
    const row = found.get(one.name) || { name: one.name, count: 0, spent: 0, failed: 0, longest: 0 };
    row.count += 1; row.spent += one.for; row.failed += one.status === "failed" ? 1 : 0;
    row.longest = Math.max(row.longest, one.for);
    found.set(one.name, row);
  }
  return [...found.values()].sort((a, b) => b.spent - a.spent);
}

export function Stream() {
  const known = useRef({ next: 0, slices: [], recorded: 0, dropped: 0 });
  const [span, setSpan] = useState(30), [halted, setHalted] = useState(false), [task, setTask] = useState("");
  const { value, error } = usePoll(() => `stream?since=${known.current.next}`, 1000, (found) => {
    const all = known.current;
    all.slices = [...all.slices, ...found.slices].slice(-KEPT);
    Object.assign(all, { next: found.next, recorded: found.recorded, dropped: found.dropped });
  });
  const frozen = useRef([]);
  if (!halted) frozen.current = known.current.slices;
  const slices = frozen.current;
  const rows = byFunction(slices);
  return html`<div><${Problem} text=${error} />
    <div class="row">
      <label>show <select value=${span} onChange=${(event) => setSpan(Number(event.target.value))}>
        ${SPANS.map(([name, of]) => html`<option value=${of}>${name}</option>`)}</select></label>
      <button type="button" class="secondary" aria-pressed=${halted} onClick=${() => setHalted(!halted)}>${halted ? "go on" : "halt"}</button>
      <span class="muted" data-test="recorded">${number(known.current.recorded)} events read, ${number(known.current.dropped)} dropped</span>
    </div>
    ${slices.length ? html`<${Chart} tall option=${{ ...drawing(slices, span), notMerge: false }} onClick=${(what) => what.data && setTask(what.data.task)}
      says=${`task stream: ${rows.slice(0, 5).map((row) => `${row.count} runs of ${plain(row.name, 100)}`).join(", ")}`} />`
      : html`<p class="muted">${value ? "Nothing has run yet." : "…"}</p>`}
    <${Story} task=${task} />
    <h2>By function</h2>
    <${Table} caption="Functions in the stream" rows=${rows} columns=${[
      ["function", (row) => html`<span><span aria-hidden="true" style=${`color:${colour(row.name)}`}>■ </span><span class="cut" title=${plain(row.name, 300)}>${plain(row.name, 300)}</span></span>`, (row) => row.name],
      ["runs", (row) => row.count], ["failed", (row) => row.failed],
      ["time", (row) => seconds(row.spent), (row) => row.spent],
      ["mean", (row) => seconds(row.spent / row.count), (row) => row.spent / row.count],
      ["longest", (row) => seconds(row.longest), (row) => row.longest]]} /></div>`;
}
