// The grid of channels.

const states = { live: "on air", down: "off air for now", waiting: "not on air yet" };

const pictureAge = 5000; // in milliseconds
const pictureTurn = 250; // between two pictures

// Grid shows channels in a list; choose(channel) is called with the one that is clicked. Its
// buttons stay when the lineup changes, so that focus stays, too.
export class Grid {
  constructor(list, choose) {
    this.list = list;
    this.choose = choose;
    this.items = new Map();
    this.pictures = new Map(); // when each channel that may be shown had its last
    setInterval(() => this.picture(), pictureTurn);
  }

  // picture gets a picture of the channel whose is the oldest, one at a time, and while the page
  // is looked at.
  async picture() {
    const [name, at] = [...this.pictures].reduce((a, b) => (b[1] < a[1] ? b : a), ["", Infinity]);
    if (this.busy || document.hidden || !(performance.now() - at > pictureAge)) {
      return;
    }
    this.busy = true;
    const next = frame();
    next.src = `thumbnails/${encodeURIComponent(name)}?${Date.now()}`;
    const late = new Promise((resolve) => setTimeout(resolve, pictureAge, false));
    const came = await Promise.race([late, next.decode().then(() => true, () => false)]);
    this.busy = false;
    const shown = this.items.get(name)?.querySelector("img");
    if (shown && this.pictures.has(name)) {
      this.pictures.set(name, performance.now());
      next.hidden = !came;
      shown.replaceWith(next);
    }
  }

  update(channels, current) {
    const names = new Set(channels.map((c) => c.name));
    for (const [name, item] of this.items) {
      if (!names.has(name)) {
        item.remove();
        this.items.delete(name);
        this.pictures.delete(name);
      }
    }
    channels.forEach((c, i) => {
      const item = this.items.get(c.name) ?? this.add(c.name);
      if (this.list.children[i] !== item) {
        this.list.insertBefore(item, this.list.children[i] ?? null);
      }
      this.fill(item.firstElementChild, c, c.name === current);
    });
  }

  add(name) {
    const item = document.createElement("li");
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.channel = name;
    button.append(frame());
    for (const part of ["number", "title", "facts"]) {
      const span = document.createElement("span");
      span.className = part;
      button.append(span);
    }
    button.addEventListener("click", () => this.choose(name));
    item.append(button);
    this.items.set(name, item);
    return item;
  }

  fill(button, c, current) {
    if (c.on_air !== "live" || c.protected) {
      this.pictures.delete(c.name);
      button.firstElementChild.hidden = true;
    } else if (!this.pictures.has(c.name)) {
      this.pictures.set(c.name, -Infinity);
    }
    const viewers = c.viewers === 1 ? "1 viewer" : `${c.viewers} viewers`;
    const facts = [states[c.on_air] ?? c.on_air, viewers];
    if (c.protected) {
      facts.push("password");
    }
    const text = { number: String(c.number), title: c.title || c.name, facts: facts.join(", ") };
    for (const span of button.querySelectorAll("span")) {
      const part = span.classList[0];
      if (span.textContent !== text[part]) {
        span.textContent = text[part];
      }
    }
    button.lastElementChild.classList.toggle("live", c.on_air === "live");
    if (current) {
      button.setAttribute("aria-current", "true");
    } else {
      button.removeAttribute("aria-current");
    }
  }
}

// frame is what shows a channel's picture, when there is one. It says nothing that the words beside
// it do not.
function frame() {
  const img = new Image(320, 180);
  img.className = "picture";
  img.alt = "";
  img.hidden = true;
  return img;
}
