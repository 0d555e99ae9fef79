// Logs with search, and errors with their remote tracebacks. Text is shown as text, whatever it contains.
import { html, useEffect, useRef, useState } from "/vendor/preact-htm.module.js";
import { clock, number, plain, short, usePoll } from "/data.js";
import { Problem, Table } from "/parts.js";

const NAME = 200;

export function Logs() {
  const [text, setText] = useState(""), [pid, setPid] = useState("");
  const { value, error } = usePoll(`logs?text=${encodeURIComponent(text)}${/^\d+$/.test(pid) ? `&pid=${pid}` : ""}`, 1500);
  const lines = value ? value.nodes.flatMap((node) => node.lines.map((line) => ({ ...line, node: node.node_id }))) : [];
  lines.sort((a, b) => a.time_s - b.time_s);
  const place = useRef(null), atEnd = useRef(true);
  useEffect(() => { if (atEnd.current && place.current) place.current.scrollTop = place.current.scrollHeight; });
  const scrolled = ({ target }) => { atEnd.current = target.scrollTop + target.clientHeight > target.scrollHeight - 40; };
  const dropped = value ? value.nodes.reduce((all, node) => all + node.dropped, 0) : 0;
  return html`<div><${Problem} text=${error} />
    <div class="row" role="search">
      <label>search <input type="search" value=${text} placeholder="text or task name (key /)" onInput=${(event) => setText(event.target.value)} /></label>
      <label>process <input inputmode="numeric" size="8" value=${pid} placeholder="pid" onInput=${(event) => setPid(event.target.value)} /></label>
      <span class="muted" role="status">${lines.length === 1 ? "1 line" : `${number(lines.length)} lines`}${dropped ? `, ${number(dropped)} older ones gave way` : ""}</span>
    </div>
    <pre class="log" tabindex="0" aria-label="Output of workers" ref=${place} onScroll=${scrolled}>${lines.map((line) => html`<div class=${line.stream === "stderr" ? "err" : ""}>
      <span class="muted">${clock(line.time_s)} ${plain(line.name, NAME)} pid=${line.pid} </span>${plain(line.text)}${line.left_out ? `… (${number(line.left_out)} more)` : ""}</div>`)}
      ${value && !lines.length ? "Nothing was written, or nothing fits." : ""}</pre></div>`;
}

export function Errors() {
  const { value, error } = usePoll("errors", 2000);
  const rows = value ? value.flatMap((node) => node.errors) : [];
  rows.sort((a, b) => b.time_s - a.time_s);
  const left = value ? value.reduce((all, node) => all + node.left_out, 0) : 0;
  const deaths = value ? value.flatMap((node) => node.failures) : null;
  return html`<div><${Problem} text=${error} />
    <p class="muted" role="status">${rows.length === 1 ? "1 error" : `${number(rows.length)} errors`} of tasks${left ? `, ${number(left)} more were left out` : ""}</p>
    ${rows.map((row) => html`<details key=${`${row.task_id}-${row.attempt}`}><summary><strong>${plain(row.error_type, NAME)}</strong> in
      ${" "}<span>${plain(row.name, NAME)}</span> <span class="muted">${clock(row.time_s)}, attempt ${row.attempt + 1}, pid ${row.pid}, node ${short(row.node_id)}</span></summary>
      <pre>${plain(row.traceback)}</pre></details>`)}
    <h2>Deaths</h2>
    <${Table} caption="Workers and actors that died" rows=${deaths} columns=${[
      ["when", (row) => clock(row.time_s), (row) => row.time_s], ["what", (row) => html`<span>${plain(row.what)}</span>`, (row) => row.what], ["node", (row) => short(row.node_id)]]} /></div>`;
}
