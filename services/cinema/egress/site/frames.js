// When which pictures were shown.

const remembered = 240;

// Frames notes pictures as they are shown, by their timestamps in the stream.
export class Frames {
  constructor() {
    this.shown = [];
    this.waiting = null;
  }

  // of notes those of a video.
  of(video) {
    video.requestVideoFrameCallback?.((_, frame) => {
      this.note({ timestamp: frame.rtpTimestamp, at: frame.expectedDisplayTime });
      this.of(video);
    });
    return this;
  }

  note(frame) {
    if (frame.timestamp === undefined) {
      return;
    }
    this.shown.push(frame);
    if (this.shown.length > remembered) {
      this.shown.shift();
    }
    if (this.waiting && after(frame.timestamp, this.waiting.timestamp)) {
      this.waiting.resolve(frame.at);
      this.waiting = null;
    }
  }

  // since is when the first picture was or will be shown that is not before a timestamp; null if
  // none is within the time, or if the browser does not say.
  since(timestamp, time) {
    const first = this.shown.find((f) => after(f.timestamp, timestamp));
    if (first) {
      return Promise.resolve(first.at);
    }
    this.waiting?.resolve(null);
    return new Promise((resolve) => {
      this.waiting = { timestamp, resolve };
      setTimeout(() => resolve(null), time);
    });
  }
}

// after says whether one timestamp is not before another; their last 32 bits count.
function after(a, b) {
  return ((a - b) >>> 0) < 0x80000000;
}
