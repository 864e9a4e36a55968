// What is pressed and swiped, as on a remote control.

const digitTime = 1200; // in milliseconds, after which a number is complete
const swipe = 50; // in pixels

// Remote calls step(+1 or -1) and choose(number); show(text) is what has been typed so far.
export class Remote {
  constructor(screen, { step, choose, show }) {
    this.step = step;
    this.choose = choose;
    this.show = show;
    this.typed = "";
    document.addEventListener("keydown", (e) => this.key(e));
    screen.addEventListener("touchstart", (e) => {
      this.from = e.touches.length === 1 ? e.touches[0].clientY : undefined;
    }, { passive: true });
    screen.addEventListener("touchend", (e) => {
      const way = this.from === undefined ? 0 : e.changedTouches[0].clientY - this.from;
      if (Math.abs(way) >= swipe) {
        this.step(way < 0 ? 1 : -1);
      }
      this.from = undefined;
    });
  }

  key(e) {
    if (e.ctrlKey || e.altKey || e.metaKey || e.target.closest("input, select, textarea, dialog")) {
      return;
    }
    if (e.key === "ArrowUp" || e.key === "ArrowDown") {
      this.step(e.key === "ArrowUp" ? 1 : -1);
    } else if (/^[0-9]$/.test(e.key)) {
      this.digit(e.key);
    } else if (e.key === "Enter" && this.typed) {
      this.complete();
    } else {
      return;
    }
    e.preventDefault();
  }

  digit(d) {
    this.typed = (this.typed + d).slice(-4);
    this.show(this.typed);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.complete(), digitTime);
  }

  complete() {
    clearTimeout(this.timer);
    const number = Number(this.typed);
    this.typed = "";
    this.show("");
    this.choose(number);
  }
}
