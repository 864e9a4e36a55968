// What a player's connection to a gateway is, whatever it goes by.

// How long a gateway may take to answer, in milliseconds.
export const joinTime = 4000;
const changeTime = 15000;
const probeTime = 800;

// Refused is a gateway's answer that is not a success; its problem is what is wrong, and with which
// field of the request, as far as the gateway says it.
export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `The gateway answers ${status}.`);
    this.status = status;
    this.field = problem.field;
  }

  // noChannel says whether there is no channel of the name that was asked for.
  get noChannel() {
    return this.status === 404 && this.field === "channel";
  }
}

// Full is the answer of a gateway that has no room, while another one has: that at location, if
// the answer says so.
export class Full extends Refused {
  constructor(location) {
    super(503, { detail: "The gateway is full, and no other one takes you at present. Try again in a moment." });
    this.location = location;
  }
}

// gatewayAt returns the address of a gateway in the form in which requests begin with it: without a slash
// at its end. It has the prefix that a proxy has the gateway below.
export function gatewayAt(url) {
  const { origin, pathname } = new URL(url);
  return origin + pathname.replace(/\/+$/, "");
}

// Session is a player's connection to a gateway. It stays when the channel changes. What
// extends it has open, ask and close.
export class Session {
  // join has a gateway send a channel; more is what a session of that kind is made with.
  static async join(base, channel, password, ...more) {
    const s = new this(...more);
    try {
      await s.open(base, channel, password);
    } catch (err) {
      s.close();
      throw err;
    }
    return s;
  }

  // change has the gateway send another channel, and returns what it says of that: how long it
  // took, and the timestamp of the first picture.
  async change(channel, password) {
    const answer = await this.ask(channel, password, changeTime);
    this.channel = channel;
    return answer;
  }

  // lives says whether the gateway still has the session.
  async lives() {
    try {
      await this.ask(this.channel, "", probeTime);
      return true;
    } catch (err) {
      return err instanceof Refused && err.status !== 404 && err.status !== 410;
    }
  }
}
