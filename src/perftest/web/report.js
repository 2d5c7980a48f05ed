// The report page: draws what the JSON report of rdma_perftest says. It computes nothing anew but sums per cell.
"use strict";
(() => {
  const report = JSON.parse(document.getElementById("results").textContent);
  const main = document.getElementById("main");
  const drawn = [];
  const labelled = 16; // endpoints up to which a matrix shows its numbers
  const rowsAtFirst = 200;

  // --- Elements

  function element(tag, text, className) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  function section(title, id) {
    const made = element("section");
    made.id = id;
    made.append(element("h2", title));
    main.append(made);
    return made;
  }
  function tile(parent, value, label, className) {
    const made = element("div", undefined, "tile");
    made.append(element("b", value, className), element("span", label, "dim"));
    parent.append(made);
  }
  // columns: [{title, number?}], rows: arrays of texts; a row's `failed` marks it.
  function table(parent, columns, rows) {
    const box = element("div", undefined, "scroll");
    const made = element("table");
    const head = element("tr");
    for (const column of columns) head.append(element("th", column.title, column.number ? "number" : ""));
    made.append(element("thead"), element("tbody"));
    made.tHead.append(head);
    const show = (count) => {
      made.tBodies[0].replaceChildren(
        ...rows.slice(0, count).map((row) => {
          const line = element("tr");
          row.forEach((text, i) => {
            const kind = columns[i].number ? "number" : "";
            line.append(element("td", text, row.failed && i === row.length - 1 ? "fail" : kind));
          });
          return line;
        }),
      );
    };
    show(rowsAtFirst);
    box.append(made);
    parent.append(box);
    if (rows.length <= rowsAtFirst) return;
    const more = element("button", `Show all ${rows.length} rows`);
    more.onclick = () => {
      show(rows.length);
      more.remove();
    };
    parent.append(more);
  }
  function chart(parent, height, option, label) {
    const box = element("div", undefined, "chart");
    box.style.height = `${height}px`;
    box.setAttribute("role", "img");
    box.dataset.shows = label; // the library describes what is drawn to those who cannot see it
    parent.append(box);
    drawn.push({ box, option });
  }

  // --- Numbers and names

  const digits = (value, count = 2) =>
    value === null || value === undefined ? "-" : Number(value).toLocaleString("en-US", { minimumFractionDigits: count, maximumFractionDigits: count });
  const whole = (value) => Number(value).toLocaleString("en-US");
  const endpoint = (end) => `${end.hostName}:${end.deviceName}`;
  const failed = (connection) => connection.status !== "ok";
  const missed = (connection) => connection.threshold !== undefined && connection.threshold.passed === false;
  const bandwidth = (connection) => connection.bwResults && connection.bwResults.bwGbSec;
  const latency = (connection) => connection.latResults && connection.latResults.medianUsec;
  const operations = (connection) => {
    const resource = (connection.testConfig && connection.testConfig.resourceConfig) || {};
    return (resource.operations || []).map((each) => `${each.verb} ${whole(each.msgSize)} B`).join(" + ");
  };
  function groupBy(list, key) {
    const groups = new Map();
    for (const each of list) {
      const name = key(each);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(each);
    }
    return groups;
  }
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // --- The parts

  function showHead(connections) {
    const head = document.getElementById("head");
    const test = connections.length ? connections[0].testName : "";
    const names = new Set(connections.map((each) => each.testName));
    const scenario = report.scenario || {};
    document.title = `${scenario.name || (names.size === 1 ? test : "RDMA benchmark")}: ${report.status}`;
    head.append(element("h1", scenario.name || "RDMA benchmark report"));
    const line = element("p", undefined, "dim");
    const good = report.status === "pass";
    line.append(element("span", good ? "passed" : `${report.status} (exit ${report.exitCode})`, good ? "pass" : "fail"));
    line.append(` · ${report.startTime || "no start time"} · version ${(report.versionInfo || {}).toolVersion || "unknown"}`);
    head.append(line);
    if (report.interrupted) head.append(element("p", "The run was interrupted: results are those up to then.", "note"));
    if (report.error) head.append(element("p", report.error, "fail"));
    const tiles = element("div", undefined, "tiles");
    head.append(tiles);
    const sum = (value) => connections.reduce((total, each) => total + (value(each) || 0), 0);
    const broken = connections.filter(failed).length;
    const late = connections.filter(missed).length;
    tile(tiles, whole(connections.length), connections.length === 1 ? "connection" : "connections");
    if (connections.some(bandwidth)) {
      tile(tiles, digits(sum(bandwidth)), "Gbit/s in all");
      tile(tiles, digits(sum((each) => each.bwResults && each.bwResults.msgRateMpps), 3), "million messages/s");
    }
    const medians = connections.map(latency).filter((value) => value !== undefined && value !== null);
    if (medians.length) tile(tiles, `${digits(Math.min(...medians))} – ${digits(Math.max(...medians))}`, "median latency, µs");
    if (broken) tile(tiles, whole(broken), "failed", "fail");
    if (late) tile(tiles, whole(late), "missed the threshold", "fail");
  }

  function cells(connections, value, join) {
    const made = new Map();
    for (const each of connections) {
      const key = `${endpoint(each.source)}\n${endpoint(each.destination)}`;
      const cell = made.get(key) || { from: endpoint(each.source), to: endpoint(each.destination), value: null, failed: 0, missed: 0, count: 0 };
      cell.count += 1;
      cell.failed += failed(each) ? 1 : 0;
      cell.missed += missed(each) ? 1 : 0;
      const measured = value(each);
      if (!failed(each) && measured !== undefined && measured !== null) cell.value = cell.value === null ? measured : join(cell.value, measured);
      made.set(key, cell);
    }
    return [...made.values()];
  }

  const inOrder = (names) => [...new Set(names)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));

  function showMatrix(parent, connections, value, join, unit, higherIsBetter) {
    const all = cells(connections, value, join);
    const from = inOrder(all.map((cell) => cell.from));
    const to = inOrder(all.map((cell) => cell.to));
    const values = all.map((cell) => cell.value).filter((each) => each !== null);
    const low = values.length ? Math.min(...values) : 0;
    const high = values.length ? Math.max(...values) : 1;
    const shows = Math.max(from.length, to.length) <= labelled;
    const mark = (cell) => (cell.failed ? "failed" : cell.value === null ? "-" : digits(cell.value) + (cell.missed ? " !" : ""));
    const point = (cell, value) => ({ value: [to.indexOf(cell.to), from.indexOf(cell.from), value], cell });
    const label = { show: shows, color: "#111", formatter: ({ data }) => mark(data.cell) };
    chart(
      parent,
      Math.min(900, 130 + 26 * Math.max(from.length, 3)),
      {
        tooltip: {
          formatter: ({ data }) => {
            const box = element("div");
            box.append(element("div", `${data.cell.from} → ${data.cell.to}`), element("b", `${mark(data.cell)} ${data.cell.failed ? "" : unit}`));
            if (data.cell.count > 1) box.append(element("div", `${data.cell.count} connections`));
            if (data.cell.missed) box.append(element("div", "missed the threshold"));
            return box;
          },
        },
        grid: { left: 10, right: 10, top: 10, bottom: 60, containLabel: true },
        xAxis: { type: "category", data: to, name: "to", axisLabel: { rotate: to.length > 4 ? 45 : 0 }, splitArea: { show: true } },
        yAxis: { type: "category", data: from, inverse: true, name: "from", splitArea: { show: true } },
        visualMap: {
          seriesIndex: 0,
          show: high > low,
          min: low,
          max: high === low ? low + 1 : high,
          orient: "horizontal",
          left: "center",
          bottom: 0,
          calculable: true,
          precision: 2,
          text: [unit, ""],
          inRange: { color: higherIsBetter ? ["#d9534f", "#f6d55c", "#3caea3"] : ["#3caea3", "#f6d55c", "#d9534f"] },
        },
        series: [
          {
            type: "heatmap",
            data: all.filter((cell) => cell.value !== null).map((cell) => ({
              ...point(cell, cell.value),
              itemStyle: cell.missed ? { borderColor: colour("--bad"), borderWidth: 2 } : undefined,
            })),
            label,
            progressive: 4000,
          },
          { type: "heatmap", data: all.filter((cell) => cell.failed).map((cell) => point(cell, 0)), itemStyle: { color: colour("--bad") }, label: { ...label, color: "#fff" } },
        ],
      },
      `connection matrix in ${unit}`,
    );
    for (const cell of all.filter((each) => each.failed)) parent.append(element("p", `failed: ${cell.from} → ${cell.to}`, "fail"));
    if (shows || values.length <= 20) return;
    const measured = all.filter((cell) => cell.value !== null).sort((a, b) => (higherIsBetter ? b.value - a.value : a.value - b.value));
    const columns = [{ title: "from" }, { title: "to" }, { title: unit, number: true }];
    const rows = (list) => list.map((cell) => [cell.from, cell.to, digits(cell.value)]);
    parent.append(element("h3", "Best 10"));
    table(parent, columns, rows(measured.slice(0, 10)));
    parent.append(element("h3", "Worst 10"));
    table(parent, columns, rows(measured.slice(-10).reverse()));
  }

  function showMatrices(connections) {
    if (!connections.length) return;
    const parent = section("Connection matrix", "matrix");
    for (const [test, members] of groupBy(connections, (each) => each.testName)) {
      parent.append(element("h3", `${test}: ${operations(members[0])}`));
      if (members.some((each) => each.latResults)) showMatrix(parent, members, latency, Math.max, "µs", false);
      else showMatrix(parent, members, bandwidth, (a, b) => a + b, "Gbit/s", true);
    }
  }

  // Connections by bandwidth, in at most 40 steps of equal width.
  function steps(values) {
    const low = Math.min(...values);
    const high = Math.max(...values);
    const count = Math.max(1, Math.min(40, Math.ceil(Math.sqrt(values.length))));
    const width = high > low ? (high - low) / count : 1;
    const found = Array.from({ length: count }, (_, i) => ({ from: low + i * width, to: low + (i + 1) * width, count: 0 }));
    for (const value of values) found[Math.min(count - 1, Math.floor((value - low) / width))].count += 1;
    return found;
  }

  function showBandwidths(parent, connections) {
    const values = connections.map(bandwidth).filter((value) => value !== undefined && value !== null);
    if (values.length < 2) return;
    const found = steps(values);
    parent.append(element("h3", "Bandwidth of the connections"));
    chart(
      parent,
      260,
      {
        tooltip: { trigger: "axis" },
        grid: { left: 60, right: 20, top: 30, bottom: 50 },
        xAxis: { type: "category", name: "Gbit/s", nameLocation: "middle", nameGap: 30, data: found.map((step) => `${digits(step.from)} – ${digits(step.to)}`) },
        yAxis: { type: "value", name: "connections", minInterval: 1 },
        series: [{ type: "bar", barCategoryGap: "5%", data: found.map((step) => step.count), itemStyle: { color: colour("--accent") } }],
      },
      "how many connections have which bandwidth",
    );
  }

  const quantiles = [
    ["minUsec", "minimum"],
    ["medianUsec", "median"],
    ["meanUsec", "mean"],
    ["p99Usec", "99 %"],
    ["p999Usec", "99.9 %"],
    ["maxUsec", "maximum"],
  ];
  function showLatencies(parent, connections) {
    const measured = connections.filter((each) => each.latResults).slice(0, 64);
    if (!measured.length) return;
    parent.append(element("h3", "Latency of the connections"));
    chart(
      parent,
      320,
      {
        tooltip: { trigger: measured.length > 8 ? "item" : "axis", valueFormatter: (value) => `${digits(value, 3)} µs` },
        legend: { type: "scroll", show: measured.length <= 16, top: 0 },
        grid: { left: 70, right: 20, top: 40, bottom: 30 },
        xAxis: { type: "category", data: quantiles.map(([, name]) => name) },
        yAxis: { type: "log", name: "µs" },
        series: measured.map((each) => ({
          type: "line",
          name: `${endpoint(each.source)} → ${endpoint(each.destination)}`,
          data: quantiles.map(([key]) => each.latResults[key]),
        })),
      },
      "latency at each quantile",
    );
  }

  function showDistributions(connections) {
    if (!connections.some((each) => each.latResults) && connections.filter(bandwidth).length < 2) return;
    const parent = section("Distributions", "distributions");
    for (const [test, members] of groupBy(connections, (each) => each.testName)) {
      parent.append(element("h3", test));
      showBandwidths(parent, members);
      showLatencies(parent, members);
    }
  }

  // Lines of whole tests (scenarios) and of single connections (-R).
  function linesOverTime(connections) {
    const ofTests = (report.timeline || []).filter((each) => each.points.length > 1)
      .map((each) => ({ name: each.testName, data: each.points }));
    const ofConnections = connections.filter((each) => each.intervals && each.intervals.samples && each.intervals.samples.length > 1)
      .map((each) => ({
        name: `${each.connectionId}: ${endpoint(each.source)} → ${endpoint(each.destination)}`,
        data: each.intervals.samples.map((sample) => [sample.sec, sample.bwGbSec]),
      }));
    return [...ofTests, ...ofConnections];
  }

  function showOverTime(connections) {
    const lines = linesOverTime(connections);
    if (!lines.length) return;
    const parent = section("Bandwidth over time", "time");
    const shown = lines.slice(0, 50);
    if (shown.length < lines.length) parent.append(element("p", `The first ${shown.length} of ${lines.length} lines.`, "dim"));
    chart(
      parent,
      340,
      {
        tooltip: { trigger: "axis", valueFormatter: (value) => `${digits(value)} Gbit/s` },
        legend: { type: "scroll", show: shown.length <= 16, top: 0 },
        dataZoom: [{ type: "inside" }, { type: "slider", bottom: 0 }],
        grid: { left: 60, right: 20, top: 40, bottom: 70 },
        xAxis: { type: "value", name: "s" },
        yAxis: { type: "value", name: "Gbit/s", min: 0 },
        series: shown.map((each) => ({ type: "line", showSymbol: false, ...each })),
      },
      "bandwidth over time",
    );
  }

  function showQueuePairs(connections) {
    const lists = [];
    for (const each of connections) {
      for (const process of each.resultsPerProcess || []) {
        if (process.qpHistogram && process.qpHistogram.length) lists.push({ each, process });
      }
    }
    if (!lists.length) return;
    const parent = section("Queue pairs", "queue-pairs");
    for (const { each, process } of lists.slice(0, 16)) {
      const shares = process.qpHistogram;
      parent.append(element("h3", `${endpoint(each.source)} → ${endpoint(each.destination)}, process ${process.process}`));
      chart(
        parent,
        240,
        {
          tooltip: {
            trigger: "axis",
            formatter: ([point]) => {
              const share = shares[point.dataIndex];
              const off = share.relativeDeviation;
              return `queue pair ${share.qpIndex}: ${digits(share.bwGbSec)} Gbit/s${off === null || off === undefined ? "" : ` (${digits(off)} %)`}`;
            },
          },
          grid: { left: 60, right: 20, top: 30, bottom: 40 },
          xAxis: { type: "category", name: "queue pair", nameLocation: "middle", nameGap: 25, data: shares.map((share) => share.qpIndex) },
          yAxis: { type: "value", name: "Gbit/s", min: 0 },
          series: [
            {
              type: "bar",
              data: shares.map((share) => share.bwGbSec),
              itemStyle: { color: colour("--accent") },
              markLine: { silent: true, symbol: "none", data: [{ type: "average", name: "mean" }] },
            },
          ],
        },
        "bandwidth of each queue pair",
      );
    }
  }

  const measures = [
    { title: "Gbit/s", number: true, of: (each) => each.bwResults && digits(each.bwResults.bwGbSec) },
    { title: "million msg/s", number: true, of: (each) => each.bwResults && digits(each.bwResults.msgRateMpps, 3) },
    { title: "median µs", number: true, of: (each) => each.latResults && digits(each.latResults.medianUsec) },
    { title: "p99 µs", number: true, of: (each) => each.latResults && digits(each.latResults.p99Usec) },
    { title: "max µs", number: true, of: (each) => each.latResults && digits(each.latResults.maxUsec) },
  ];
  function usedMeasures(list) {
    return measures.filter((measure) => list.some((each) => measure.of(each)));
  }

  function showAggregates() {
    const levels = [
      ["perTest", "Per test", [["test", "testName"]]],
      ["perNode", "Per node", [["host", "hostName"], ["direction", "direction"]]],
      ["perDevice", "Per device", [["host", "hostName"], ["device", "deviceName"], ["direction", "direction"]]],
    ];
    const all = report.aggregatedResults || {};
    if (!levels.some(([key]) => (all[key] || []).length)) return;
    const parent = section("Summary", "summary");
    for (const [key, title, names] of levels) {
      const list = all[key] || [];
      if (!list.length) continue;
      const used = usedMeasures(list);
      parent.append(element("h3", title));
      table(
        parent,
        [...names.map(([name]) => ({ title: name })), ...used],
        list.map((each) => [...names.map(([, field]) => each[field] ?? ""), ...used.map((measure) => measure.of(each) || "-")]),
      );
    }
  }

  function showConnections(connections) {
    if (!connections.length) return;
    const parent = section("Connections", "connections");
    const used = usedMeasures(connections);
    const state = (each) => {
      if (failed(each)) return each.error || each.status;
      const invalid = (each.validationResults || {}).invalidDataSampleCount || 0;
      if (invalid) return `${whole(invalid)} corrupt`;
      return missed(each) ? "threshold missed" : "ok";
    };
    table(
      parent,
      [{ title: "id", number: true }, { title: "test" }, { title: "from" }, { title: "to" }, { title: "operation" }, ...used, { title: "result" }],
      connections.map((each) => {
        const row = [whole(each.connectionId), each.testName, endpoint(each.source), endpoint(each.destination), operations(each), ...used.map((measure) => measure.of(each) || "-"), state(each)];
        row.failed = state(each) !== "ok";
        return row;
      }),
    );
  }

  function flat(value, path, out) {
    if (value === null || value === undefined || value === "") return;
    if (typeof value !== "object") out.push([path, String(value)]);
    else for (const [key, inner] of Object.entries(value)) flat(inner, path ? (Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`) : key, out);
  }
  function showConfiguration() {
    const rows = [];
    flat(report.scenario, "", rows);
    flat(report.versionInfo, "versionInfo", rows);
    if (!rows.length) return;
    table(section("Configuration", "configuration"), [{ title: "setting" }, { title: "value" }], rows);
  }

  // In the colours that the reader prefers.
  function draw() {
    const text = colour("--text");
    const dim = colour("--dim");
    const axis = { axisLabel: { color: dim }, nameTextStyle: { color: dim } };
    const show = (each) => {
      if (each.chart) each.chart.dispose();
      each.chart = charts.init(each.box);
      const option = { animation: false, aria: { enabled: true }, textStyle: { color: text }, ...each.option };
      for (const key of ["xAxis", "yAxis"]) {
        if (option[key]) option[key] = { ...axis, ...option[key], axisLabel: { ...axis.axisLabel, ...option[key].axisLabel } };
      }
      if (option.legend) option.legend = { textStyle: { color: text }, ...option.legend };
      if (option.visualMap) option.visualMap = { textStyle: { color: text }, ...option.visualMap };
      each.chart.setOption(option);
      each.box.dataset.drawn = "true";
    };
    for (const each of drawn) show(each);
  }

  const connections = report.connections || [];
  showHead(connections);
  showMatrices(connections);
  showAggregates();
  showDistributions(connections);
  showOverTime(connections);
  showQueuePairs(connections);
  showConnections(connections);
  showConfiguration();
  draw();
  addEventListener("resize", () => drawn.forEach((each) => each.chart.resize()));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  document.documentElement.dataset.ready = "true";
})();
