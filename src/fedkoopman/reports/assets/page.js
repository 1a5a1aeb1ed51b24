
// The page: charts where the document has figures, and in a live page whatever has changed since.

const charts = new Map();
let told = JSON.parse(document.getElementById("story").textContent);

function showChart(figure, block) {
  const state = charts.get(block.id)?.state;
  charts.get(block.id)?.observer?.disconnect();
  try { charts.set(block.id, new Chart(figure, block, state)); }
  catch (error) { figure.append(make("p", {class: "notice"}, `This chart could not be drawn: ${error}`)); throw error; }
}

const folded = (line, content) => line ? make("details", {}, make("summary", {}, line), content) : content;

function render(block) {
  if (block.kind === "text") return make("p", {class: block.style || null}, block.text);
  if (block.kind === "facts") return make("dl", {class: "facts"}, ...block.facts.map(([name, value]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  if (block.kind === "code") return folded(block.folded, make("pre", {}, make("code", {}, block.text)));
  if (block.kind === "table") {
    const head = make("tr", {}, ...block.head.map(name => make("th", {scope: "col"}, name)));
    const rows = block.rows.map(([first, ...rest]) => make("tr", {}, make("th", {scope: "row", class: first[1] || null}, first[0]),
      ...rest.map(([words, style], i) => make("td", {class: style || null, "data-name": block.head[i + 1]}, words))));
    return folded(block.folded, make("div", {class: "scroll", tabindex: "0"},
      make("table", {id: block.id, class: block.style || null}, make("thead", {}, head), make("tbody", {}, ...rows))));
  }
  return make("figure", {class: "chart", id: block.id});
}

// Replaces what differs; what the reader has opened, chosen or zoomed stays so.
function update(next) {
  const before = new Map(told.sections.map(one => [one.id, one])), main = document.getElementById("sections");
  document.title = next.title;
  document.getElementById("title").textContent = next.title;
  document.getElementById("lede").textContent = next.lede;
  for (const id of before.keys()) if (!next.sections.some(one => one.id === id)) document.getElementById(id)?.remove();
  next.sections.forEach((section, place) => {
    let home = document.getElementById(section.id);
    if (!home) {
      home = make("section", {id: section.id, "aria-labelledby": `${section.id}-title`}, make("h2", {id: `${section.id}-title`}));
      const later = next.sections.slice(place + 1).map(one => document.getElementById(one.id)).find(one => one);
      main.insertBefore(home, later ?? null);
    }
    home.firstElementChild.textContent = section.title;
    const old = before.get(section.id)?.blocks ?? [], shown = [...home.children].slice(1);
    section.blocks.forEach((block, i) => {
      if (shown[i] && JSON.stringify(old[i]) === JSON.stringify(block)) return;
      if (shown[i] && block.kind === "chart" && shown[i].id === block.id) return showChart(shown[i], block);
      const made = render(block);
      if (made.tagName === "DETAILS" && shown[i]?.open) made.open = true;
      if (shown[i]) shown[i].replaceWith(made); else home.append(made);
      if (block.kind === "chart") showChart(made, block);
    });
    shown.slice(section.blocks.length).forEach(one => one.remove());
  });
  const links = next.sections.map(one => make("a", {href: `#${one.id}`}, one.title));
  document.getElementById("contents").replaceChildren(...links);
  told = next;
}

async function follow(address) {
  const status = document.getElementById("connection");
  const say = (words, style) => {  // only what is new, as screen readers read it out
    if (status.textContent !== words) status.textContent = words;
    status.className = style;
    status.hidden = false;
  };
  let tag = null, since = "";
  for (;;) {
    try {
      const answer = await fetch(address, {headers: tag ? {"If-None-Match": tag} : {}, cache: "no-store"});
      if (answer.status === 200) {
        if (tag) since = ` Last change: ${new Date().toLocaleTimeString()}.`;
        tag = answer.headers.get("ETag");
        update(await answer.json());
      }
      else if (answer.status !== 304) throw new Error(`status ${answer.status}`);
      say(told.finished ? "Finished." : `Live: updated as slots are recorded.${since}`, "live");
    } catch (error) {
      if (told.finished) return say("Finished, and this page's server has ended; the report stays in the run's directory.", "live");
      say("No connection to fedkoopman watch; trying again. What is shown was true when it ended.", "notice");
    }
    await new Promise(done => setTimeout(done, 1000));
  }
}

document.documentElement.classList.add("scripts");
for (const section of told.sections)
  for (const block of section.blocks)
    if (block.kind === "chart") showChart(document.getElementById(block.id), block);
if (document.body.dataset.live) follow(document.body.dataset.live);
