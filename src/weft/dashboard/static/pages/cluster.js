// Nodes: how busy they are, what waits and why.
import { html, useRef, useState } from "/vendor/preact-htm.module.js";
import { bytes, clock, number, seconds, short, usePoll } from "/data.js";
import { Card, Lines, Problem, State, Table } from "/parts.js";
import { Span } from "/pages/ended.js";

const KEPT_POINTS = 1000;
const percent = (value) => `${Math.round(value)} %`;
const rate = (value) => `${number(Math.round(value))}/s`;

// Adds what is new of each line, and returns the time of the newest point.
function remember(histories, charts, newest) {
  for (const [chart, lines] of Object.entries(charts)) {
    for (const [node, points] of Object.entries(lines)) {
      const line = ((histories[chart] ||= {})[short(node)] ||= []);
      line.push(...points);
      line.splice(0, line.length - KEPT_POINTS);
      newest = Math.max(newest, line[line.length - 1][0]);
    }
  }
  return newest;
}

const last = (histories, chart, name) => {
  const line = (histories[chart] || {})[name];
  return line && line.length ? line[line.length - 1][1] : null;
};

// Of a node's GPUs: how busy each is and its memory; in words where nothing can be told.
const gpus = (machine) => {
  if (machine.gpus === undefined) return null;
  if (!machine.gpus || !machine.gpus.length) return "none";
  return machine.gpus.map((gpu) => `${gpu.utilisation_percent === null ? "?" : gpu.utilisation_percent} %, ${bytes(gpu.memory_used_bytes)} of ${bytes(gpu.memory_total_bytes)}`).join("; ");
};

function nodeColumns(machines, histories) {
  const of = (node) => machines.find((machine) => machine.node_id === node.node_id) || {};
  const used = (node, name) => (node.total[name] === undefined ? null
    : `${number(node.total[name] - (node.available[name] || 0))} of ${number(node.total[name])}`);
  const now = (node, chart, unit) => {
    const value = last(histories, chart, short(node.node_id));
    return value === null ? null : unit(value);
  };
  return [
    ["node", (node) => `${short(node.node_id)}${node.is_head ? " (head)" : ""}`],
    ["state", (node) => html`<${State} of=${node.state} /> ${node.why}`, (node) => node.state],
    ["address", (node) => node.address],
    ["CPUs held", (node) => used(node, "CPU")],
    ["GPUs held", (node) => used(node, "GPU")],
    ["CPU", (node) => now(node, "cpu", percent)],
    ["GPU", (node) => gpus(of(node))],
    ["memory", (node) => (of(node).memory_used_bytes ? `${bytes(of(node).memory_used_bytes)} of ${bytes(of(node).memory_total_bytes)}` : null)],
    ["arena", (node) => (of(node).arena_bytes ? `${bytes(of(node).arena_used_bytes)} of ${bytes(of(node).arena_bytes)}` : null)],
    ["network", (node) => now(node, "network", (value) => `${bytes(value)}/s`)],
    ["tasks run", (node) => (of(node).tallies ? number(of(node).tallies.finished + of(node).tallies.failed) : null)],
    ["leased", (node) => node.tasks_running],
    ["actors", (node) => node.actors],
    ["idle", (node) => (node.idle_s >= 1 ? seconds(node.idle_s) : null)],
  ];
}

function Waiting({ rows }) {
  if (!rows.length) return html`<p class="muted">Nothing waits for resources.</p>`;
  return html`<ul>${rows.map((row) => html`<li>
    ${row.count} × ${row.kind} of job ${row.job}:
    ${" "}${Object.entries(row.resources).map(([name, value]) => `${value} ${name}`).join(", ") || "nothing"}, for ${row.waits_s} s
    ${row.fits === "never" ? " – no node can ever hold it" : ""}
    <ul>${row.nodes.slice(0, 4).map((node) => html`<li class="muted">node ${short(node.node_id)}: ${node.why}</li>`)}</ul></li>`)}</ul>`;
}

export function Cluster() {
  const histories = useRef({}), newest = useRef(0), [span, setSpan] = useState(600);
  const { value, error } = usePoll(() => `cluster?since=${Math.floor(newest.current)}`, 1000, (found) => {
    newest.current = remember(histories.current, found.charts, newest.current);
  });
  if (!value) return html`<div><${Problem} text=${error} /><p aria-busy="true">Asking the nodes…</p></div>`;
  const { status, machines } = value;
  const sum = (of) => machines.reduce((total, machine) => total + of(machine), 0);
  const alive = status.nodes.filter((node) => node.state !== "dead");
  const from = newest.current - 1000 * span;
  const lines = (chart) => Object.fromEntries(Object.entries(histories.current[chart] || {}).map(
    ([node, line]) => [node, line.filter(([at]) => at >= from)]));
  const total = (chart) => Object.values(lines(chart)).reduce((all, line) => all + (line.length ? line[line.length - 1][1] : 0), 0);
  return html`<div><${Problem} text=${error} />
    <div class="cards">
      <${Card} title="nodes alive" note=${status.address}>${alive.length} of ${status.nodes.length}<//>
      <${Card} title="tasks run" note=${rate(total("tasks"))}>
        <span data-test="tasks-run">${number(sum((m) => m.tallies.finished + m.tallies.failed))}</span><//>
      <${Card} title="tasks failed"><span data-test="tasks-failed">${number(sum((m) => m.tallies.failed))}</span><//>
      <${Card} title="wait for resources">${number(status.demands.reduce((all, row) => all + row.count, 0))}<//>
      <${Card} title="actors"><span data-test="actors">${number(alive.reduce((all, node) => all + (node.actors || 0), 0))}</span><//>
      <${Card} title="object store" note=${`of ${bytes(sum((m) => m.arena_bytes))}`}>${bytes(sum((m) => m.arena_used_bytes))}<//>
      <${Card} title="spilled" note="bytes so far">${bytes(sum((m) => m.tallies.spilled_bytes))}<//>
    </div>
    <div class="row"><${Span} value=${span} onChange=${setSpan} /></div>
    <div class="charts">
      <${Lines} title="Tasks per second" series=${lines("tasks")} unit=${(v) => number(v < 10 ? Math.round(10 * v) / 10 : Math.round(v))}
        says=${`tasks per second, now ${Math.round(total("tasks"))}`} />
      <${Lines} title="CPU" series=${lines("cpu")} unit=${percent} max=${100} says="CPU use of each node in percent" />
      ${Object.keys(lines("gpu")).length ? html`<${Lines} title="GPU" series=${lines("gpu")} unit=${percent} max=${100} says="GPU use of each node in percent" />` : null}
      <${Lines} title="Memory" series=${lines("memory")} unit=${percent} max=${100} says="memory use of each node in percent" />
      <${Lines} title="Object store" series=${lines("arena")} whole unit=${bytes} says="bytes in each node's object store" />
      <${Lines} title="Network" series=${lines("network")} whole unit=${(v) => `${bytes(v)}/s`} says="network traffic of each node" />
    </div>
    <h2>Nodes</h2>
    <${Table} caption="Nodes" columns=${nodeColumns(machines, histories.current)} rows=${status.nodes} />
    <h2>What waits, and why</h2><${Waiting} rows=${status.demands} />
    <h2>Recent failures</h2>
    <${Table} caption="Failures" empty="None." rows=${status.failures}
      columns=${[["when", (row) => clock(row.time_s), (row) => row.time_s], ["what", (row) => row.what]]} /></div>`;
}
