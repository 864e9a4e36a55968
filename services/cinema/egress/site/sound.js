// Plays decoded sound.

// So many seconds of sound are kept, so that it goes on when some comes late; more each time that
// it did not.
const ahead = { least: 0.02, step: 0.01, most: 0.1 };
const most = 0.2; // more is left out: it would be heard late for as long as the channel is

// Sound is a stream of what is given to play, one after the other.
export class Sound {
  constructor() {
    this.context = new AudioContext({ latencyHint: "interactive", sampleRate: 48000 });
    this.out = this.context.createMediaStreamDestination();
    this.stream = this.out.stream;
    this.playing = new Set();
    this.next = 0; // when the next one is heard; 0: as soon as it can be
    this.ahead = ahead.least;
    this.wake = () => this.context.resume();
    for (const what of ["keydown", "pointerdown"]) {
      addEventListener(what, this.wake);
    }
  }

  play(data) {
    const now = this.context.currentTime;
    if (this.next < now) {
      this.ahead = Math.min(this.ahead + (this.next > 0 ? ahead.step : 0), ahead.most);
      this.next = now + this.ahead;
    }
    if (this.next <= now + most) {
      this.schedule(data);
    }
    data.close();
  }

  schedule(data) {
    const buffer = this.context.createBuffer(data.numberOfChannels, data.numberOfFrames, data.sampleRate);
    for (let i = 0; i < data.numberOfChannels; i++) {
      data.copyTo(buffer.getChannelData(i), { planeIndex: i, format: "f32-planar" });
    }
    const source = new AudioBufferSourceNode(this.context, { buffer });
    source.connect(this.out);
    source.addEventListener("ended", () => this.playing.delete(source));
    source.start(this.next);
    this.playing.add(source);
    this.next += buffer.duration;
  }

  // cut has nothing more be heard of what was given.
  cut() {
    for (const source of this.playing) {
      source.stop();
    }
    this.playing.clear();
    this.next = 0;
  }

  end() {
    for (const what of ["keydown", "pointerdown"]) {
      removeEventListener(what, this.wake);
    }
    this.context.close();
  }
}
