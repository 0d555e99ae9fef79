// A flame graph of a running process, and the stacks of all of them.
import { html, useState } from "/vendor/preact-htm.module.js";
import { ask, colour, plain, usePoll } from "/data.js";
import { Chart, Problem, Table } from "/parts.js";

function layers(root) {
  const rows = [];
  let deepest = 0;
  const walk = (node, depth, from) => {
    rows.push({ name: node.name, value: [depth, from, from + node.value, node.value] });
    deepest = Math.max(deepest, depth);
    let at = from;
    for (const child of node.children) { walk(child, depth + 1, at); at += child.value; }
  };
  walk(root, 0, 0);
  return { rows, deepest };
}

function drawing(root) {
  const { rows, deepest } = layers(root);
  const item = (params, api) => {
    const from = api.coord([api.value(1), api.value(0)]), to = api.coord([api.value(2), api.value(0)]);
    const height = Math.abs(api.size([0, 1])[1]) - 1, width = Math.max(0.5, to[0] - from[0] - 0.5);
    const name = rows[params.dataIndex].name;
    return { type: "rect", shape: { x: from[0], y: from[1] - height, width, height }, style: { fill: colour(name) },
      textContent: { style: { text: width > 30 ? name : "", width: width - 6, overflow: "truncate", fontSize: 10, fill: "#fff" } },
      textConfig: { position: "insideLeft" } };
  };
  return { notMerge: true, grid: { left: 8, right: 8, top: 8, bottom: 8 },
    xAxis: { show: false, max: root.value }, yAxis: { show: false, max: Math.max(deepest + 1, 28) },
    tooltip: { formatter: ({ data }) => `${data.name}\n${((100 * data.value[3]) / root.value).toFixed(1)} %` },
    series: [{ type: "custom", renderItem: item, encode: { x: [1, 2], y: 0 }, data: rows }] };
}

export function Profile() {
  const workers = usePoll("rows/workers", 5000);
  const [pid, setPid] = useState(""), [spent, setSpent] = useState(2);
  const [known, setKnown] = useState(null), [busy, setBusy] = useState(false), [error, setError] = useState("");
  const [stacks, setStacks] = useState(null);
  const run = async () => {
    setBusy(true); setError("");
    try { setKnown(await ask(`flame?pid=${pid}&seconds=${spent}`)); } catch (problem) { setError(problem.message); }
    setBusy(false);
  };
  const look = async () => {
    setError("");
    try { setStacks((await ask("rows/stacks")).rows); } catch (problem) { setError(problem.message); }
  };
  const rows = workers.value ? workers.value.rows : [];
  return html`<div><${Problem} text=${error || workers.error} />
    <div class="row">
      <label>process <select value=${pid} onChange=${(event) => setPid(event.target.value)}><option value="">choose…</option>
        ${rows.map((row) => html`<option value=${row.pid}>${row.pid} ${row.worker_type.toLowerCase()} ${row.state}</option>`)}</select></label>
      <label>seconds <input type="number" min="1" max="30" value=${spent} onInput=${(event) => setSpent(Number(event.target.value) || 1)} /></label>
      <button type="button" disabled=${!pid || busy} aria-busy=${busy} onClick=${run}>flame graph</button>
      <button type="button" class="secondary" onClick=${look}>all stacks now</button>
    </div>
    ${known ? (known.value ? html`<${Chart} tall option=${drawing(known)} says=${`flame graph with ${known.value} samples`} />`
      : html`<p class="muted">No samples: it did nothing in Python all the time.</p>`)
      : html`<p class="muted">The flame graph shows where a process of this machine spends its time (py-spy).</p>`}
    ${stacks ? html`<h2>Stacks</h2>${stacks.map((row) => html`<details><summary>process ${row.pid}, ${row.thread}</summary><pre>${plain(row.stack, 16000)}</pre></details>`)}` : null}</div>`;
}
