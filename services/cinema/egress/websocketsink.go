package egress

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// stallTimeout is how long a write to a player may take.
const stallTimeout = 10 * time.Second

// webSocketSink is the WebSocket to a viewer's player.
type webSocketSink struct {
	v            *viewer
	conn         *websocket.Conn
	units        *media.Assembler
	queue        *queue
	owned        bool         // the sink closes the connection; before start, the request does
	writingSince atomic.Int64 // start of a write in progress, in Unix nanoseconds; 0 if there is none
}

func newWebSocketSink(v *viewer, conn *websocket.Conn) *webSocketSink {
	conn.SetReadLimit(maxChange)
	return &webSocketSink{v: v, conn: conn, units: media.NewAssembler(frameHeader), queue: newQueue()}
}

// start implements sink.
func (w *webSocketSink) start(context.Context) (string, error) {
	w.owned = true
	t := playerMessage{Session: "/whep/sessions/" + w.v.secret}
	w.queue.putText(t.text())
	return "", nil
}

// run sends the picture and starts the goroutines of the connection.
func (w *webSocketSink) run() {
	w.v.connect(time.Now())
	for _, f := range []func(context.Context){w.write, w.read, w.monitor} {
		w.v.tasks.Start(f)
	}
}

// send implements sink.
func (w *webSocketSink) send(o media.Out) {
	u, ok := w.units.Push(o)
	if !ok {
		return
	}
	if !w.queue.put(message{data: frameUnit(u), picture: !u.Sound, key: u.Key, at: time.Now()}) {
		w.v.g.metrics.slow.Inc()
	}
}

// close implements sink.
func (w *webSocketSink) close() {
	if w.owned {
		_ = w.conn.CloseNow()
	}
}

// write writes queued messages until the connection is closed. A write has no deadline of its
// own: monitor checks how long it takes.
func (w *webSocketSink) write(ctx context.Context) {
	for {
		m, err := w.queue.next(ctx)
		if err != nil {
			return
		}
		kind := websocket.MessageBinary
		if m.text {
			kind = websocket.MessageText
		}
		w.writingSince.Store(time.Now().UnixNano())
		if w.conn.Write(context.WithoutCancel(ctx), kind, m.data) != nil {
			w.v.g.endViewer(w.v, "nothing can be sent to it")
			return
		}
		w.writingSince.Store(0)
	}
}

// monitor ends a viewer that gives no sign of life, or whose writes stall.
func (w *webSocketSink) monitor(ctx context.Context) {
	for tasks.Sleep(ctx, w.v.g.cfg.Times.Silence/2) == nil {
		asked, cancel := context.WithTimeout(ctx, w.v.g.cfg.Times.Silence)
		err := w.conn.Ping(asked)
		cancel()
		since := w.writingSince.Load()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			w.v.g.endViewer(w.v, "nothing comes from it any more")
			return
		case since != 0 && time.Since(time.Unix(0, since)) > stallTimeout:
			w.v.g.endViewer(w.v, "it takes nothing")
			return
		}
	}
}

// read handles the player's messages until the connection is closed.
func (w *webSocketSink) read(ctx context.Context) {
	for {
		kind, b, err := w.conn.Read(ctx)
		if err != nil {
			w.v.g.endViewer(w.v, "it has closed its connection")
			return
		}
		if kind != websocket.MessageText {
			w.reply(playerMessage{Refused: newRefusal(http.StatusUnsupportedMediaType, "message", "binary: want text")})
			continue
		}
		w.handle(b)
	}
}

// handle handles a message of the player. It does not wait for a change of channel.
func (w *webSocketSink) handle(b []byte) {
	a, err := parsePlayerRequest(b)
	if !w.v.g.limits.request(w.v.address, time.Now()) {
		err = newRefusal(http.StatusTooManyRequests, "", "more than %d requests a second from your address", maxRequestRate)
	}
	switch {
	case err != nil:
		w.reply(playerMessage{Request: a.Request, Refused: asRefusal(err)})
	case a.Again:
		w.v.requestRefresh(time.Now())
	default:
		w.v.tasks.Start(func(context.Context) { w.reply(a.answer(w.v.change(a.Channel, a.Password))) })
	}
}

// reply sends the player a message. A player that does not read its answers is removed.
func (w *webSocketSink) reply(t playerMessage) {
	if t.Refused != nil {
		w.v.g.metrics.refuse(t.Refused.Status)
	}
	if !w.queue.putText(t.text()) {
		w.v.g.endViewer(w.v, "it does not take its answers")
	}
}
