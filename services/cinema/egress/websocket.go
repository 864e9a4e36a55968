package egress

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// webSocketProtocol is the subprotocol that players request. A player that has a password requests
// another one: passwordPrefix followed by the password.
const (
	webSocketProtocol = "sluice.cinema.1"
	passwordPrefix    = "bearer."
)

// rejectTimeout bounds the message to a player that is rejected.
const rejectTimeout = 2 * time.Second

// serveWebSocket adds a viewer whose player uses a WebSocket and decodes by itself.
func (g *Gateway) serveWebSocket(w http.ResponseWriter, r *http.Request) error {
	o := joinRequest{channel: r.PathValue("channel"), from: g.limits.address(r), player: "websocket"}
	if err := checkChannel(o.channel); err != nil {
		return err
	}
	var err error
	if o.password, err = parseUpgrade(r); err != nil {
		return err
	}
	// Pages of any origin may connect, as by WHEP, because browsers never send a password on
	// their own.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{webSocketProtocol}, InsecureSkipVerify: true})
	if err != nil {
		return nil // Accept has answered
	}
	o.open = func(v *viewer) (sink, error) { return newWebSocketSink(v, conn), nil }
	v, _, err := g.join(o)
	if err != nil {
		g.reject(conn, err)
		return nil
	}
	v.out.(*webSocketSink).run()
	return nil
}

// parseUpgrade validates a request to upgrade to a WebSocket with webSocketProtocol, and returns the
// password in the request.
func parseUpgrade(r *http.Request) (password string, err error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return "", newRefusal(http.StatusUpgradeRequired, "Upgrade", "%.80q: want websocket", r.Header.Get("Upgrade"))
	}
	spoken := false
	for _, p := range strings.Split(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",") {
		p = strings.TrimSpace(p)
		spoken = spoken || p == webSocketProtocol
		text, ok := strings.CutPrefix(p, passwordPrefix)
		if !ok {
			continue
		}
		secret, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || len(secret) == 0 || len(secret) > maxPassword {
			return "", newRefusal(http.StatusUnauthorized, "Sec-WebSocket-Protocol", "want %s and the channel's password, of 1 to %d bytes, in base64url without padding", passwordPrefix, maxPassword)
		}
		password = string(secret)
	}
	if !spoken {
		return "", newRefusal(http.StatusBadRequest, "Sec-WebSocket-Protocol", "want %s", webSocketProtocol)
	}
	return password, nil
}

// reject sends the error to a player over its WebSocket, because browsers hide all other
// answers from pages.
func (g *Gateway) reject(conn *websocket.Conn, err error) {
	done := make(chan struct{})
	if !g.tasks.Start(func(ctx context.Context) {
		defer close(done)
		stop := context.AfterFunc(ctx, func() { _ = conn.CloseNow() })
		defer stop()
		r := asRefusal(err)
		g.metrics.refuse(r.Status)
		t := playerMessage{Refused: r}
		if err == errFull {
			t.Location = g.otherGateway()
		}
		ctx, cancel := context.WithTimeout(ctx, rejectTimeout)
		defer cancel()
		if conn.Write(ctx, websocket.MessageText, t.text()) == nil {
			_ = conn.Close(websocket.StatusCode(4000+r.Status), r.Title)
		}
	}) {
		close(done)
	}
	<-done
	_ = conn.CloseNow()
}

// playerMessage is a message to a player.
type playerMessage struct {
	Request   uint32   `json:"request,omitempty"`
	Session   string   `json:"session,omitempty"`
	Zap       string   `json:"zap,omitempty"`
	Timestamp *int64   `json:"timestamp,omitempty"`
	Refused   *refusal `json:"refused,omitempty"`
	Location  string   `json:"location,omitempty"`
}

func (t *playerMessage) text() []byte {
	b, _ := json.Marshal(t) // cannot fail
	return b
}

// playerRequest is a message from a player.
type playerRequest struct {
	Request  uint32 `json:"request"`
	Channel  string `json:"channel"`
	Password string `json:"password"`
	Again    bool   `json:"again"`
}

// parsePlayerRequest parses a player's message.
func parsePlayerRequest(b []byte) (a playerRequest, err error) {
	const want = `want {"request": 1, "channel": "name"} or {"request": 1, "again": true}`
	if err := decodeStrict(b, &a); err != nil {
		return a, newRefusal(http.StatusBadRequest, "message", "%v: %s", err, want)
	}
	switch {
	case a.Request == 0:
		return a, newRefusal(http.StatusBadRequest, "request", "0: want a number by which the answer is known")
	case a.Again && (a.Channel != "" || a.Password != ""):
		return a, newRefusal(http.StatusBadRequest, "again", "with a channel or a password: %s", want)
	case len(a.Password) > maxPassword:
		return a, newRefusal(http.StatusUnauthorized, "password", "of more than %d bytes", maxPassword)
	case a.Again:
		return a, nil
	}
	return a, checkChannel(a.Channel)
}

// frameHeader is the number of bytes of the header before a picture or sound: flags and a time.
const frameHeader = 9

// Flags in the first byte of the header.
const (
	flagSound = 1 << iota
	flagKey
	flagCut
)

// frameUnit writes the header of a picture or sound, which was assembled with room for the header, and
// returns both.
func frameUnit(u media.Unit) []byte {
	for _, x := range []struct {
		is   bool
		flag byte
	}{{u.Sound, flagSound}, {u.Key, flagKey}, {u.Cut, flagCut}} {
		if x.is {
			u.Data[0] |= x.flag
		}
	}
	micro := u.Time.Microseconds()
	for i := range 8 {
		u.Data[1+i] = byte(micro >> (56 - 8*i))
	}
	return u.Data
}

// answer returns the answer to a change of channel.
func (a *playerRequest) answer(z changeResult, err error) playerMessage {
	t := playerMessage{Request: a.Request}
	switch {
	case err != nil:
		t.Refused = asRefusal(controllerRefusal(err, a.Channel))
	case z.Timestamp != nil:
		micro := z.time.Microseconds()
		t.Zap, t.Timestamp = fmt.Sprint(z.Zap), &micro
	default:
		t.Zap = fmt.Sprint(z.Zap)
	}
	return t
}

// stallTimeout is how long a write to a player may take.
const stallTimeout = 10 * time.Second

// webSocketSink is the WebSocket to a viewer's player.
type webSocketSink struct {
	v            *viewer
	conn         *websocket.Conn
	units        *media.Assembler
	queue        *queue
	owned        bool         // the sink closes the connection; before start, the request's handler does
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

// run sends the stream from the last key frame on, and starts the goroutines of the connection.
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
