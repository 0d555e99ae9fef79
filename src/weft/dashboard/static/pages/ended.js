// What ran in the last hours: by function, and single runs as far as the nodes have kept them.
import { html, useEffect, useState } from "/vendor/preact-htm.module.js";
import { ask, clock, number, plain, seconds, short, usePoll } from "/data.js";
import { Problem, State, Table } from "/parts.js";

export const SPANS = [[600, "10 minutes"], [3600, "hour"], [21600, "6 hours"], [86400, "day"]];

export const Span = ({ value, onChange }) => html`<label>the last <select value=${value}
  onChange=${(event) => onChange(Number(event.target.value))}>${SPANS.map(([long, name]) => html`<option value=${long}>${name}</option>`)}</select></label>`;

function Runs({ name, span }) {
  const [order, setOrder] = useState("longest"), [known, setKnown] = useState({ rows: null, error: "" });
  useEffect(() => {
    let isOver = false;
    ask(`runs?name=${encodeURIComponent(name)}&seconds=${span}&order=${order}`).then(
      ({ rows }) => isOver || setKnown({ rows, error: "" }), (problem) => isOver || setKnown({ rows: null, error: problem.message }));
    return () => { isOver = true; };
  }, [name, span, order]);
  return html`<section data-test="runs"><h3>${plain(name, 200)}</h3><${Problem} text=${known.error} />
    <label>which <select value=${order} onChange=${(event) => setOrder(event.target.value)}>
      <option value="longest">the longest</option><option value="newest">the newest</option><option value="failed">those that failed or were tried again</option></select></label>
    <${Table} caption="Runs" rows=${known.rows} empty="None is kept." columns=${[
      ["ended", (row) => clock(row.ended_s), (row) => row.ended_s], ["took", (row) => seconds(row.seconds), (row) => row.seconds],
      ["outcome", (row) => html`<${State} of=${row.outcome} />`, (row) => row.outcome], ["attempt", (row) => row.attempt + 1],
      ["process", (row) => row.pid], ["node", (row) => short(row.node_id), (row) => row.node_id],
      ["task", (row) => html`<span class="mono" title=${row.task_id}>${short(row.task_id)}</span>`, (row) => row.task_id]]} /></section>`;
}

export function Ended() {
  const [span, setSpan] = useState(3600), [name, setName] = useState("");
  const { value, error } = usePoll(() => `ended?seconds=${span}`, 3000);
  const left = value ? value.missed + value.refused : 0;
  return html`<section><h2>What ran</h2><${Problem} text=${error} />
    <div class="row"><${Span} value=${span} onChange=${setSpan} /></div>
    <${Table} caption="Runs by function, the most time first" rows=${value && value.rows} empty="Nothing ran in that time." columns=${[
      ["function", (row) => html`<button type="button" aria-pressed=${row.name === name} onClick=${() => setName(row.name)}>${plain(row.name, 100)}</button>`, (row) => row.name],
      ["runs", (row) => number(row.runs), (row) => row.runs], ["failed", (row) => row.failed], ["tried again", (row) => row.retried],
      ["time", (row) => seconds(row.seconds), (row) => row.seconds],
      ["mean", (row) => seconds(row.seconds / row.runs), (row) => row.seconds / row.runs],
      ["longest", (row) => seconds(row.longest_s), (row) => row.longest_s]]} />
    ${value ? html`<p class="muted" data-test="kept">Since ${clock(value.from_s)}: of ${number(value.recorded + value.missed)} events ${number(value.recorded)} are counted here${left ? `; what a process does beyond some 12,000 events a second is left out` : ""}${value.thinned ? `, and ${number(value.thinned)} are not among the single runs` : ""}.</p>` : null}
    ${name ? html`<${Runs} name=${name} span=${span} />` : null}</section>`;
}
