package egress

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-net/sluice/cinema/media"
)

// lightProtocol is what is spoken by WebSocket; bearer is what a password is asked for with.
const (
	lightProtocol = "sluice.cinema.1"
	bearer        = "bearer."
)

// farewellTime bounds what a player is told that does not get in.
const farewellTime = 2 * time.Second

// light makes a viewer of a WebSocket, the player of which decodes by itself.
func (g *Gateway) light(w http.ResponseWriter, r *http.Request) error {
	o := offer{channel: r.PathValue("channel"), from: g.limits.address(r), player: "websocket"}
	if err := checkChannel(o.channel); err != nil {
		return err
	}
	var err error
	if o.password, err = upgrades(r); err != nil {
		return err
	}
	// A page of any origin may ask, as by WHEP: no password comes by itself.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{lightProtocol}, InsecureSkipVerify: true})
	if err != nil {
		return nil // it has been answered
	}
	o.open = func(v *viewer) (outlet, error) { return newWire(v, conn), nil }
	v, _, err := g.join(o)
	if err != nil {
		g.farewell(conn, err)
		return nil
	}
	v.out.(*wire).run()
	return nil
}

// upgrades says whether a request is one for the protocol, and which password is in it.
func upgrades(r *http.Request) (password string, err error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return "", refused(http.StatusUpgradeRequired, "Upgrade", "%.80q: want websocket", r.Header.Get("Upgrade"))
	}
	spoken := false
	for _, p := range strings.Split(strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), ","), ",") {
		p = strings.TrimSpace(p)
		spoken = spoken || p == lightProtocol
		text, is := strings.CutPrefix(p, bearer)
		if !is {
			continue
		}
		secret, err := base64.RawURLEncoding.Strict().DecodeString(text)
		if err != nil || len(secret) == 0 || len(secret) > maxPassword {
			return "", refused(http.StatusUnauthorized, "Sec-WebSocket-Protocol", "want %s and the channel's password, of 1 to %d bytes, in base64url without padding", bearer, maxPassword)
		}
		password = string(secret)
	}
	if !spoken {
		return "", refused(http.StatusBadRequest, "Sec-WebSocket-Protocol", "want %s", lightProtocol)
	}
	return password, nil
}

// farewell tells a player why it does not get in: browsers show pages nothing but that.
func (g *Gateway) farewell(conn *websocket.Conn, err error) {
	done := make(chan struct{})
	if !g.tasks.Start(func(ctx context.Context) {
		defer close(done)
		stop := context.AfterFunc(ctx, func() { _ = conn.CloseNow() })
		defer stop()
		r := asRefusal(err)
		g.metrics.refuse(r.Status)
		t := told{Refused: r}
		if err == errFull {
			t.Location = g.elsewhere()
		}
		ctx, cancel := context.WithTimeout(ctx, farewellTime)
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

// told is what a player is told.
type told struct {
	Request   uint32   `json:"request,omitempty"`
	Session   string   `json:"session,omitempty"`
	Zap       string   `json:"zap,omitempty"`
	Timestamp *int64   `json:"timestamp,omitempty"`
	Refused   *refusal `json:"refused,omitempty"`
	Location  string   `json:"location,omitempty"`
}

func (t *told) text() []byte {
	b, _ := json.Marshal(t) // cannot fail
	return b
}

// ask is what a player asks for.
type ask struct {
	Request  uint32 `json:"request"`
	Channel  string `json:"channel"`
	Password string `json:"password"`
	Again    bool   `json:"again"`
}

// parseAsk reads a player's message.
func parseAsk(b []byte) (a ask, err error) {
	const want = `want {"request": 1, "channel": "name"} or {"request": 1, "again": true}`
	if err := strict(b, &a); err != nil {
		return a, refused(http.StatusBadRequest, "message", "%v: %s", err, want)
	}
	switch {
	case a.Request == 0:
		return a, refused(http.StatusBadRequest, "request", "0: want a number by which the answer is known")
	case a.Again && (a.Channel != "" || a.Password != ""):
		return a, refused(http.StatusBadRequest, "again", "with a channel or a password: %s", want)
	case len(a.Password) > maxPassword:
		return a, refused(http.StatusUnauthorized, "password", "of more than %d bytes", maxPassword)
	case a.Again:
		return a, nil
	}
	return a, checkChannel(a.Channel)
}

// head is how many bytes are before a picture or sound.
const head = 9

// What the first of them says.
const (
	flagSound = 1 << iota
	flagKey
	flagCut
)

// framed puts the head before a unit that was made with room for it.
func framed(u media.Unit) []byte {
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

// answer makes what a change of channel is answered with.
func (a *ask) answer(z zapped, err error) told {
	t := told{Request: a.Request}
	switch {
	case err != nil:
		t.Refused = asRefusal(ofController(err, a.Channel))
	case z.Timestamp != nil:
		micro := z.time.Microseconds()
		t.Zap, t.Timestamp = fmt.Sprint(z.Zap), &micro
	default:
		t.Zap = fmt.Sprint(z.Zap)
	}
	return t
}
