// One task's story: where it came from, where it ran, what it needed, how it ended.
import { html, useEffect, useState } from "/vendor/preact-htm.module.js";
import { ask, clock, plain, seconds, short } from "/data.js";
import { Problem, State } from "/parts.js";

export function Story({ task }) {
  const [known, setKnown] = useState(null), [error, setError] = useState("");
  useEffect(() => {
    setKnown(null); setError("");
    if (task) ask(`task?id=${encodeURIComponent(task)}`).then(setKnown, (problem) => setError(problem.message));
  }, [task]);
  if (!task) return null;
  if (!known) return html`<${Problem} text=${error} />`;
  return html`<article aria-live="polite" data-test="story"><strong>${plain(known.name, 200)}</strong> <${State} of=${known.status} />
    <dl>
      <dt>task</dt><dd class="mono">${known.id}, attempt ${known.attempt}</dd>
      <dt>submitted</dt><dd>${clock(known.submitted_s)}${known.parent_name ? ` by ${plain(known.parent_name, 200)}` : ""}</dd>
      <dt>ran</dt><dd>${known.started_s ? `${clock(known.started_s)}, for ${seconds(known.ended_s - known.started_s)}, in process ${known.pid} of node ${short(known.node_id)}` : `not yet${known.why_pending ? `: ${known.why_pending}` : ""}`}
        ${known.started_s && known.submitted_s ? ` (${seconds(Math.max(0, known.started_s - known.submitted_s))} after it was submitted)` : ""}</dd>
      <dt>needs</dt><dd>${known.uses.length} results of other tasks; ${known.used_by.length} known tasks need its own; it submitted ${known.children.length}</dd>
    </dl>
    ${known.error ? html`<pre>${plain(known.error, 16000)}</pre>` : null}</article>`;
}
