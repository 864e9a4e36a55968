package egress

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/internal/tasks"
)

// stillTime is how long a player may take nothing at all.
const stillTime = 10 * time.Second

// wire is the WebSocket to a viewer's player.
type wire struct {
	v     *viewer
	conn  *websocket.Conn
	units *media.Assembler
	queue *queue
	mine  bool         // the connection, which is the request's until there is a viewer
	busy  atomic.Int64 // since when a message is being written, in nanoseconds of Unix; 0: none is
}

func newWire(v *viewer, conn *websocket.Conn) *wire {
	conn.SetReadLimit(maxChange)
	return &wire{v: v, conn: conn, units: media.NewAssembler(head), queue: newQueue()}
}

// start implements outlet.
func (w *wire) start(context.Context) (string, error) {
	w.mine = true
	t := told{Session: "/whep/sessions/" + w.v.secret}
	w.queue.tell(t.text())
	return "", nil
}

// run has the player get what there is, and says what becomes of the connection.
func (w *wire) run() {
	w.v.connect(time.Now())
	for _, f := range []func(context.Context){w.write, w.read, w.watch} {
		w.v.tasks.Start(f)
	}
}

// send implements outlet.
func (w *wire) send(o media.Out) {
	u, is := w.units.Push(o)
	if !is {
		return
	}
	if !w.queue.put(message{data: framed(u), picture: !u.Sound, key: u.Key, at: time.Now()}) {
		w.v.g.metrics.slow.Inc()
	}
}

// close implements outlet.
func (w *wire) close() {
	if w.mine {
		_ = w.conn.CloseNow()
	}
}

// write writes what is to be sent, until the connection is closed. A write has no deadline of its
// own: watch looks how long it takes.
func (w *wire) write(ctx context.Context) {
	for {
		m, err := w.queue.next(ctx)
		if err != nil {
			return
		}
		kind := websocket.MessageBinary
		if m.text {
			kind = websocket.MessageText
		}
		w.busy.Store(time.Now().UnixNano())
		if w.conn.Write(context.WithoutCancel(ctx), kind, m.data) != nil {
			w.v.g.leave(w.v, "nothing can be sent to it")
			return
		}
		w.busy.Store(0)
	}
}

// watch ends a viewer that gives no sign of life, or takes nothing.
func (w *wire) watch(ctx context.Context) {
	for tasks.Sleep(ctx, w.v.g.cfg.Times.Silence/2) == nil {
		asked, cancel := context.WithTimeout(ctx, w.v.g.cfg.Times.Silence)
		err := w.conn.Ping(asked)
		cancel()
		since := w.busy.Load()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.v.g.leave(w.v, "nothing comes from it any more")
			return
		case since != 0 && time.Since(time.Unix(0, since)) > stillTime:
			w.v.g.leave(w.v, "it takes nothing")
			return
		}
	}
}

// read takes what the player asks for.
func (w *wire) read(ctx context.Context) {
	for {
		kind, b, err := w.conn.Read(ctx)
		if err != nil {
			w.v.g.leave(w.v, "it has closed its connection")
			return
		}
		if kind != websocket.MessageText {
			w.tell(told{Refused: refused(http.StatusUnsupportedMediaType, "message", "binary: want text")})
			continue
		}
		w.asked(b)
	}
}

// asked does what the player asks for. It does not wait for a change of channel.
func (w *wire) asked(b []byte) {
	a, err := parseAsk(b)
	if !w.v.g.limits.request(w.v.address, time.Now()) {
		err = refused(http.StatusTooManyRequests, "", "more than %d requests a second from your address", perSecond)
	}
	switch {
	case err != nil:
		w.tell(told{Request: a.Request, Refused: asRefusal(err)})
	case a.Again:
		w.v.again(time.Now())
	default:
		w.v.tasks.Start(func(context.Context) { w.tell(a.answer(w.v.change(a.Channel, a.Password))) })
	}
}

// tell tells the player something. One that asks and does not listen is gone.
func (w *wire) tell(t told) {
	if t.Refused != nil {
		w.v.g.metrics.refuse(t.Refused.Status)
	}
	if !w.queue.tell(t.text()) {
		w.v.g.leave(w.v, "it does not take its answers")
	}
}
