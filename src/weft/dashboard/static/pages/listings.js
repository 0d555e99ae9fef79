// Tasks, actors, objects, jobs, placement groups: what the state listings know.
import { html } from "/vendor/preact-htm.module.js";
import { bytes, number, short, usePoll } from "/data.js";
import { Ended } from "/pages/ended.js";
import { Problem, State, Table } from "/parts.js";

const state = (of) => ["state", (row) => html`<${State} of=${of(row)} />`, of];
const id = (title, of) => [title, (row) => html`<span class="mono" title=${of(row) || ""}>${short(of(row))}</span>`, of];

// Results of one task, and values of one process, begin alike: what tells them apart is at the end.
const objectName = (of) => `${short(of)}…${of.slice(-8)}`;

function Listing({ what, caption, columns, children }) {
  const { value, error } = usePoll(`rows/${what}`, 2000);
  return html`<div><${Problem} text=${error} />${children ? children(value ? value.rows : []) : null}
    <${Table} caption=${caption} columns=${columns} rows=${value && value.rows} /></div>`;
}

export const Tasks = () => html`<div><${Listing} what="tasks" caption="Tasks that wait or run" columns=${[
      id("task", (row) => row.task_id), ["name", (row) => row.name], state((row) => row.state),
      ["waits because", (row) => row.why_pending], ["type", (row) => row.type],
      ["attempt", (row) => row.attempt_number + 1], ["worker", (row) => row.worker_pid], ["owner", (row) => row.pid],
      id("node", (row) => row.node_id), id("parent", (row) => row.parent_task_id)]} /><${Ended} /></div>`;

export function Actors() {
  const tasks = usePoll("rows/tasks", 2000).value;
  const queue = (row) => (tasks ? tasks.rows.filter((task) => task.actor_id === row.actor_id).length : null);
  return html`<${Listing} what="actors" caption="Actors" columns=${[
    id("actor", (row) => row.actor_id), ["class", (row) => row.class_name], ["name", (row) => row.name],
    state((row) => row.state), ["waits because", (row) => row.why_pending], ["unanswered calls", queue], ["pid", (row) => row.pid], id("node", (row) => row.node_id),
    ["restarts", (row) => row.num_restarts], ["job", (row) => row.job_id],
    ["holds", (row) => Object.entries(row.required_resources).map(([name, value]) => `${value} ${name}`).join(", ")],
    ["died of", (row) => row.death_cause]]} />`;
}

export const Objects = () => html`<${Listing} what="objects" caption="Objects, the largest first" columns=${[
    ["object", (row) => html`<span class="mono" title=${row.object_id}>${objectName(row.object_id)}</span>`, (row) => row.object_id], ["size", (row) => bytes(row.object_size), (row) => row.object_size],
    state((row) => row.task_status), ["where", (row) => (row.is_in_shared_memory ? "arena" : "inline")],
    ["made at", (row) => row.call_site], ["owner", (row) => `${row.owner_type.toLowerCase()} ${row.pid}`],
    ["references", (row) => row.references], ["borrowers", (row) => row.held_by || null, (row) => row.borrowers], id("node", (row) => row.node_id)]}>
  ${(rows) => html`<p>${number(rows.length)} objects, ${bytes(rows.reduce((all, row) => all + row.object_size, 0))}</p>`}<//>`;

export function Jobs() {
  const { value, error } = usePoll("cluster", 2000);
  return html`<div><${Listing} what="jobs" caption="Drivers" columns=${[
      ["job", (row) => row.job_id], ["pid", (row) => row.pid], state((row) => row.status), ["namespace", (row) => row.namespace]]} />
    <h2>Submitted jobs</h2><${Problem} text=${error} />
    <${Table} caption="Submitted jobs" rows=${value && value.status.submissions} columns=${[
      ["job", (row) => row.submission_id], state((row) => row.status), ["command", (row) => row.entrypoint], ["message", (row) => row.message]]} />
    <h2>Workers</h2>
    <${Listing} what="workers" caption="Workers and drivers" columns=${[
      ["pid", (row) => row.pid], ["type", (row) => row.worker_type.toLowerCase()], state((row) => row.state), ["job", (row) => row.job_id], id("node", (row) => row.node_id)]} /></div>`;
}

export const Groups = () => html`<${Listing} what="placement_groups" caption="Placement groups" columns=${[
  id("group", (row) => row.group), ["name", (row) => row.name], state((row) => row.state), ["waits because", (row) => row.why_pending], ["strategy", (row) => row.strategy],
  ["bundles", (row) => row.bundles.map((bundle, at) => `${Object.entries(bundle).map(([name, value]) => `${value} ${name}`).join(" + ")} on ${short(row.nodes[at])}`).join("; ")],
  ["job", (row) => row.job], ["detached", (row) => (row.detached ? "yes" : "no")]]} />`;
