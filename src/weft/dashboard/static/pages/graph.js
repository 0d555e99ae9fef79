// The dynamic task graph. Collapsed, a node is a function; a click opens its tasks, a click on a task its story.
import { html, useState } from "/vendor/preact-htm.module.js";
import { colour, plain, usePoll } from "/data.js";
import { Chart, Problem, Table, isDark } from "/parts.js";
import { Story } from "/pages/story.js";

const ACROSS = 24;
const KINDS = { data: ["data: a result is used", "#0b6e99", "solid"], control: ["control: submitted by", "#8a8a8a", "dashed"], state: ["state: next on the same actor", "#b8860b", "dotted"] };

// On a phone the columns are as far apart as the rows, and nodes are half as large, so that they do not cover each other.
const spacing = () => (innerWidth < 640 ? { x: 90, y: 90, most: 24, label: 84 } : { x: 180, y: 60, most: 46, label: 150 });

// Where each node is: a column for each depth, several beside each other where one would be too long; a long chain of
// columns goes on below.
function places(nodes, apart) {
  const counts = new Map(), firsts = new Map(), seen = new Map();
  for (const { depth } of nodes) counts.set(depth, (counts.get(depth) || 0) + 1);
  const rows = (depth) => Math.max(10, Math.ceil(Math.sqrt(2 * counts.get(depth))));
  let column = 0;
  for (const depth of [...counts.keys()].sort((a, b) => a - b)) {
    firsts.set(depth, column);
    column += Math.ceil(counts.get(depth) / rows(depth));
  }
  const band = apart.y * (2 + Math.max(0, ...[...counts.keys()].map((depth) => Math.min(counts.get(depth), rows(depth)))));
  return nodes.map(({ depth }) => {
    const at = seen.get(depth) || 0, down = at % rows(depth), across = firsts.get(depth) + Math.floor(at / rows(depth));
    seen.set(depth, at + 1);
    return { x: (across % ACROSS) * apart.x, y: (down + 0.4 * (across % 2)) * apart.y + Math.floor(across / ACROSS) * band };
  });
}

function drawing({ nodes, edges }, shown) {
  const apart = spacing(), at = places(nodes, apart);
  const data = nodes.map((node, index) => {
    const name = plain(node.name, 100);
    return { id: node.id, name: node.id, label: { formatter: node.count > 1 ? `${name} × ${node.count}` : name },
      ...at[index], value: node.count,
      symbolSize: Math.min(apart.most, 14 + 6 * Math.log2(1 + node.count)),
      itemStyle: { color: node.status === "failed" ? "#c0392b" : colour(node.name) } };
  });
  const links = edges.filter((edge) => shown[edge.kind]).map((edge) => ({ source: edge.source, target: edge.target,
    lineStyle: { color: KINDS[edge.kind][1], type: KINDS[edge.kind][2], opacity: 0.8, width: 1.2 + Math.min(3, Math.log10(edge.count || 1)), curveness: 0.12 },
    says: `${edge.kind} × ${edge.count || 1}` }));
  return { notMerge: false,
    tooltip: { formatter: ({ data: one, dataType }) => (dataType === "edge" ? one.says : one.label.formatter) },
    series: [{ type: "graph", layout: "none", roam: true, labelLayout: { hideOverlap: true }, draggable: true, edgeSymbol: ["none", "arrow"], edgeSymbolSize: 7,
      label: { show: true, position: "bottom", fontSize: 10, width: apart.label, overflow: "truncate", color: isDark() ? "#ddd" : "#222" }, data, links }] };
}

export function Graph() {
  const [name, setName] = useState(""), [byTask, setByTask] = useState(false), [task, setTask] = useState("");
  const [shown, setShown] = useState({ data: true, control: true, state: true });
  const path = name ? `graph?name=${encodeURIComponent(name)}` : byTask ? "graph?by=task" : "graph";
  const { value, error } = usePoll(path, 2000);
  const isTasks = Boolean(name) || byTask;
  const choose = (id) => (value.by === "task" ? setTask(id) : setName(id)); // of what is shown, which may be a moment old
  const picked = (what) => { if (what.dataType !== "edge" && what.data) choose(what.data.id); };
  const edges = value ? value.edges : [];
  return html`<div><${Problem} text=${error} />
    <div class="row">
      <label><input type="checkbox" role="switch" checked=${isTasks} onChange=${(event) => { setByTask(event.target.checked); setName(""); }} /> each task</label>
      ${name ? html`<button type="button" class="secondary" onClick=${() => setName("")}>all functions (now ${plain(name, 40)})</button>` : null}
      ${Object.entries(KINDS).map(([kind, [says, ink]]) => html`<label style=${`border-bottom:3px solid ${ink}`}><input type="checkbox" checked=${shown[kind]}
        onChange=${(event) => setShown({ ...shown, [kind]: event.target.checked })} /> ${says}</label>`)}
    </div>
    ${value && value.nodes.length ? html`<${Chart} tall key=${path} option=${drawing(value, shown)} onClick=${picked}
      says=${`task graph with ${value.nodes.length} nodes and ${edges.length} edges`} />` : html`<p class="muted">Nothing has run yet.</p>`}
    ${value && value.left_out ? html`<p class="muted">${value.left_out} more are not drawn.</p>` : null}
    <${Story} task=${task} />
    <details><summary>The same as a table</summary>
      <${Table} caption="Nodes of the graph" rows=${value ? value.nodes : null} columns=${[
        ["name", (node) => node.name], ["tasks", (node) => node.count], ["status", (node) => node.status],
        ["", (node) => html`<button type="button" class="outline" onClick=${() => choose(node.id)}>open</button>`]]} />
      <${Table} caption="Edges of the graph" rows=${edges} columns=${[
        ["from", (edge) => edge.source], ["to", (edge) => edge.target], ["kind", (edge) => edge.kind], ["tasks", (edge) => edge.count || 1]]} /></details></div>`;
}
