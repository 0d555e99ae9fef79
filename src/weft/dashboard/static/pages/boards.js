// Pages of libraries: tuning trials and RL runs, as they publish them (weft.util.board).
import { html } from "/vendor/preact-htm.module.js";
import { number, seconds, usePoll } from "/data.js";
import { Chart, Problem, State, Table } from "/parts.js";

const shorter = (value) => (typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value);

function parallel(board) {
  const keys = [...new Set(board.trials.flatMap((trial) => Object.keys(trial.config)))].slice(0, 12);
  const axes = [...keys.map((key) => [key, (trial) => trial.config[key]]), [board.metric, (trial) => trial.best]];
  const done = board.trials.filter((trial) => typeof trial.best === "number");
  const bests = done.map((trial) => trial.best);
  const better = board.mode === "min" ? ["#2e8b57", "#ddd"] : ["#ddd", "#2e8b57"];
  return { notMerge: true, tooltip: {},
    parallelAxis: axes.map(([name, of], dim) => {
      const values = done.map(of), numeric = values.every((value) => typeof value === "number");
      return { dim, name: String(name).slice(0, 24), type: numeric ? "value" : "category", scale: true,
        data: numeric ? undefined : [...new Set(values.map(String))] };
    }),
    visualMap: { show: false, dimension: axes.length - 1, min: Math.min(...bests), max: Math.max(...bests), inRange: { color: better } },
    parallel: { left: 40, right: 60, top: 40, bottom: 20 },
    series: [{ type: "parallel", lineStyle: { width: 2, opacity: 0.7 }, data: done.map((trial) => axes.map(([, of]) => {
      const value = of(trial);
      return typeof value === "number" ? value : String(value);
    })) }] };
}

const curves = (runs, axis) => ({ notMerge: true, grid: { left: 60, right: 20, top: 36, bottom: 40 },
  legend: { type: "scroll", top: 4 }, tooltip: { trigger: "axis" },
  xAxis: { type: "value", name: axis, nameLocation: "middle", nameGap: 24 }, yAxis: { type: "value", scale: true },
  series: runs.map(([name, data]) => ({ name, type: "line", showSymbol: data.length < 30, data })) });

function Boards({ page, empty, Board }) {
  const { value, error } = usePoll(`boards?page=${page}`, 2000);
  if (!value) return html`<div><${Problem} text=${error} /></div>`;
  return html`<div><${Problem} text=${error} />${value.boards.length ? value.boards.map((row) =>
    html`<section key=${row.name}><h2>${row.name}</h2><${Board} board=${row.board} /></section>`) : html`<p class="muted">${empty}</p>`}</div>`;
}

function Experiment({ board }) {
  const measured = board.trials.filter((trial) => typeof trial.best === "number");
  const runs = board.trials.filter((trial) => trial.curve && trial.curve.length).slice(-40).map((trial) => [trial.id, trial.curve]);
  return html`<p>${board.trials.length} trials: ${Object.entries(board.trials.reduce((all, trial) => ({ ...all, [trial.state]: (all[trial.state] || 0) + 1 }), {}))
      .map(([name, count]) => `${count} ${name}`).join(", ")}; ${board.metric} (${board.mode})</p>
    <div class="charts">
      ${measured.length ? html`<article><${Chart} option=${parallel(board)} says=${`parallel coordinates of ${measured.length} trials`} /></article>` : null}
      ${runs.length ? html`<article><${Chart} option=${curves(runs, "iteration")} says=${`learning curves of ${runs.length} trials`} /></article>` : null}
    </div>
    <${Table} caption="Trials" rows=${board.trials} columns=${[
      ["trial", (trial) => trial.id], ["state", (trial) => html`<${State} of=${trial.state} />`, (trial) => trial.state],
      [board.metric || "metric", (trial) => shorter(trial.best), (trial) => trial.best ?? -Infinity],
      ["iterations", (trial) => trial.iterations], ["time", (trial) => seconds(trial.seconds), (trial) => trial.seconds],
      ["config", (trial) => Object.entries(trial.config).map(([key, one]) => `${key}=${shorter(one)}`).join(", ")],
      ["error", (trial) => trial.error]]} />`;
}

function Run({ board }) {
  return html`<p>${board.algorithm} on ${board.environment}: ${number(board.steps)} steps, ${number(Math.round(board.steps_per_second || 0))} steps/s</p>
    <div class="charts">
      <article><${Chart} option=${curves([["reward", board.rewards]], "steps")} says="mean reward over steps" /></article>
      <article><${Chart} option=${curves([["steps/s", board.throughput]], "steps")} says="throughput over steps" /></article>
    </div>`;
}

export const Tune = () => html`<${Boards} page="tune" Board=${Experiment} empty="No experiment of weft.tune runs, or has run, in this session." />`;
export const Rl = () => html`<${Boards} page="rl" Board=${Run} empty="No algorithm of weft.rl runs, or has run, in this session." />`;
