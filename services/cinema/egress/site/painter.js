// Paints decoded pictures.

// Painter shows the newest picture when the screen is drawn the next time. What was decoded before
// it since the last time, as that of a burst, is not shown.
export class Painter {
  constructor(canvas, frames) {
    this.canvas = canvas;
    this.frames = frames;
    this.context = canvas.getContext("2d", { alpha: false });
    this.picture = null;
    this.next = 0;
  }

  take(picture) {
    this.picture?.close();
    this.picture = picture;
    this.next ||= requestAnimationFrame((now) => this.paint(now));
  }

  paint(now) {
    this.next = 0;
    const picture = this.picture;
    this.picture = null;
    const { displayWidth: width, displayHeight: height, timestamp } = picture;
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.context.drawImage(picture, 0, 0);
    picture.close();
    this.frames.note({ timestamp, at: now });
    this.canvas.dispatchEvent(new CustomEvent("picture", { detail: { at: now, timestamp } }));
  }

  end() {
    cancelAnimationFrame(this.next);
    this.picture?.close();
    this.picture = null;
  }
}
