package egress

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"pgregory.net/rapid"
)

// webSocketPlayer is a viewer's browser that decodes by itself.
type webSocketPlayer struct {
	*world
	conn    *websocket.Conn
	session string

	mu     sync.Mutex
	units  []unit
	told   []playerMessage
	failed []string
	closed websocket.StatusCode
}

// unit is a picture or sound as the player gets it.
type unit struct {
	flags byte
	time  int64
	from  byte // number of its channel, unless it is from the middle of a picture
}

func (w *world) dials(channel string, protocols ...string) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(w.t.Context(), w.url+"/ws/"+channel, &websocket.DialOptions{Subprotocols: append([]string{webSocketProtocol}, protocols...)})
}

// watches makes a player watch a channel by WebSocket, and read everything.
func (w *world) watches(channel string, protocols ...string) *webSocketPlayer {
	w.t.Helper()
	conn, _, err := w.dials(channel, protocols...)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &webSocketPlayer{world: w, conn: conn}
	conn.SetReadLimit(8 << 20)
	done := make(chan struct{})
	go func() { defer close(done); p.plays() }()
	w.t.Cleanup(func() { _ = conn.CloseNow(); <-done })
	return p
}

func (p *webSocketPlayer) plays() {
	for {
		kind, b, err := p.conn.Read(context.Background())
		p.mu.Lock()
		switch {
		case err != nil:
			p.closed = websocket.CloseStatus(err)
			p.mu.Unlock()
			return
		case kind == websocket.MessageText:
			var t playerMessage
			if err := json.Unmarshal(b, &t); err != nil {
				p.failed = append(p.failed, err.Error())
			}
			p.told = append(p.told, t)
			p.session += t.Session
		default:
			p.take(b)
		}
		p.mu.Unlock()
	}
}

func (p *webSocketPlayer) take(b []byte) {
	u := unit{flags: b[0], time: int64(binary.BigEndian.Uint64(b[1:])), from: b[len(b)-1]}
	if u.flags&flagSound == 0 {
		u.from = b[frameHeader+6] // of 00 00 00 01, header, another, number
		if u.flags&flagKey != 0 != (b[frameHeader+4] == 0x67) {
			p.failed = append(p.failed, fmt.Sprintf("flags %d of a picture that begins with %x", u.flags, b[frameHeader+4]))
		}
	}
	for _, last := range slices.Backward(p.units) {
		if last.flags&flagSound == u.flags&flagSound {
			if u.time <= last.time {
				p.failed = append(p.failed, fmt.Sprintf("%+v after %+v", u, last))
			}
			break
		}
	}
	p.units = append(p.units, u)
}

func (p *webSocketPlayer) of(flag byte) (out []unit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.units {
		if u.flags&flagSound == flag {
			out = append(out, u)
		}
	}
	return out
}

func (p *webSocketPlayer) sees(number byte) func() bool {
	return func() bool {
		pictures, sound := p.of(0), p.of(flagSound)
		return len(pictures) > 0 && len(sound) > 0 && pictures[len(pictures)-1].from == number && sound[len(sound)-1].from == number
	}
}

// answered waits for a message that satisfies a condition.
func (p *webSocketPlayer) answered(ok func(playerMessage) bool) (t playerMessage) {
	p.world.t.Helper()
	p.until("an answer", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		i := slices.IndexFunc(p.told, ok)
		if i >= 0 {
			t = p.told[i]
		}
		return i >= 0
	})
	return t
}

func (p *webSocketPlayer) says(text string) {
	p.world.t.Helper()
	if err := p.conn.Write(p.world.t.Context(), websocket.MessageText, []byte(text)); err != nil {
		p.world.t.Fatal(err)
	}
}

func (p *webSocketPlayer) whole() {
	p.world.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.failed {
		p.world.t.Error(f)
	}
}

// TestWebSocketPlayer checks that a player by WebSocket sees its channel from a key frame on,
// and changes it by a message and by HTTP.
func TestWebSocketPlayer(t *testing.T) {
	w := newWorld(t, nil, "news", "sport")
	p := w.watches("news")
	w.until("picture and sound", p.sees(1))
	if first := p.of(0)[0]; first.flags&flagKey == 0 {
		t.Errorf("the first picture is %+v", first)
	}
	if live := w.live(); len(live) != 1 || live[0].Player != "websocket" || live[0].Packets == 0 || !slices.Equal(live[0].Channels, []string{"news"}) {
		t.Errorf("%+v", live)
	}
	p.says(`{"request": 7, "channel": "sport"}`)
	a := p.answered(func(t playerMessage) bool { return t.Request == 7 })
	w.until("the other channel", p.sees(2))
	pictures := p.of(0)
	cut := slices.IndexFunc(pictures, func(u unit) bool { return u.flags&flagCut != 0 && u.from == 2 })
	if cut < 0 || pictures[cut].flags&flagKey == 0 || a.Timestamp == nil || pictures[cut].time != *a.Timestamp || a.Zap == "" {
		t.Errorf("the cut is %d of %+v, the answer %+v", cut, pictures, a)
	}
	for i, u := range pictures {
		if want := byte(1); i >= cut && u.from == want || i < cut && u.from != want {
			t.Errorf("picture %d is of channel %d, the cut is %d", i, u.from, cut)
		}
	}
	res, text := w.ask(http.MethodPut, p.session+"/channel", "application/json", `{"channel":"news"}`)
	if res.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", res.Status, text)
	}
	w.until("the first channel", p.sees(1))
	before := len(p.of(0))
	p.says(`{"request": 8, "again": true}`)
	w.until("a key frame", func() bool {
		return slices.ContainsFunc(p.of(0)[before:], func(u unit) bool { return u.flags&flagKey != 0 })
	})
	p.whole()
	_ = p.conn.CloseNow()
	w.until("nobody", func() bool { return w.count() == 0 })
}

// TestWebSocketPlayerPassword checks that a channel's password is sent with the protocol or
// with the change, and not in the URL.
func TestWebSocketPlayerPassword(t *testing.T) {
	w := newWorld(t, nil, "news", "vault")
	w.studios["vault"].protected = true
	p := w.watches("news")
	w.until("picture and sound", p.sees(1))
	p.says(`{"request": 1, "channel": "vault", "password": "no"}`)
	if a := p.answered(func(t playerMessage) bool { return t.Request == 1 }); a.Refused == nil || a.Refused.Status != http.StatusUnauthorized {
		t.Errorf("%+v", a)
	}
	p.says(`{"request": 2, "channel": "vault", "password": "sesame"}`)
	w.until("the vault", p.sees(2))
	q := w.watches("vault")
	if a := q.answered(func(t playerMessage) bool { return t.Refused != nil }); a.Refused.Status != http.StatusUnauthorized {
		t.Errorf("%+v", a)
	}
	w.until("the end", func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.closed == 4401 })
	r := w.watches("vault", passwordPrefix+base64.RawURLEncoding.EncodeToString([]byte("sesame")))
	w.until("the vault", r.sees(2))
}

// TestWebSocketPlayerWrong checks that invalid requests and messages are explained, and do not
// end the player.
func TestWebSocketPlayerWrong(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.MaxViewers = 1 }, "news")
	for _, c := range []struct {
		path     string
		header   []string
		status   int
		field    string
		protocol string
	}{
		{"/ws/news", nil, 426, "Upgrade", ""},
		{"/ws/..", []string{"Upgrade", "websocket"}, 404, "", webSocketProtocol},
		{"/ws/NEWS", []string{"Upgrade", "websocket"}, 400, "channel", webSocketProtocol},
		{"/ws/news", []string{"Upgrade", "websocket"}, 400, "Sec-WebSocket-Protocol", "chat"},
		{"/ws/news", []string{"Upgrade", "websocket"}, 401, "Sec-WebSocket-Protocol", webSocketProtocol + ", bearer.!"},
		{"/ws/news", []string{"Upgrade", "websocket"}, 401, "Sec-WebSocket-Protocol", webSocketProtocol + ", bearer."},
		{"/ws/news", []string{"Upgrade", "websocket"}, 401, "Sec-WebSocket-Protocol", webSocketProtocol + ", bearer." + strings.Repeat("YWFh", 25)},
	} {
		header := append([]string{"Sec-WebSocket-Protocol", c.protocol}, c.header...)
		res, text := w.ask(http.MethodGet, c.path, "", "", header...)
		if res.StatusCode != c.status && res.StatusCode != http.StatusTemporaryRedirect || !strings.Contains(text, c.field) {
			t.Errorf("%s %q: %s: %s", c.path, c.protocol, res.Status, text)
		}
	}
	p := w.watches("news")
	w.until("picture and sound", p.sees(1))
	for i, c := range []struct {
		text, field string
		status      int
	}{
		{`news`, "message", 400},
		{`{"request": 1`, "message", 400},
		{`{"request": 1, "channel": "news", "volume": 11}`, "message", 400},
		{`{"request": 1, "channel": "news"}{}`, "message", 400},
		{`{"request": -1, "channel": "news"}`, "message", 400},
		{`{"channel": "news"}`, "request", 400},
		{`{"request": 1}`, "channel", 400},
		{`{"request": 1, "channel": "../etc"}`, "channel", 400},
		{`{"request": 1, "channel": "nowhere"}`, "channel", 404},
		{`{"request": 1, "channel": "news", "again": true}`, "again", 400},
		{`{"request": 1, "channel": "news", "password": "` + strings.Repeat("x", 73) + `"}`, "password", 401},
	} {
		p.says(c.text)
		refusals := func() (out []playerMessage) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, x := range p.told {
				if x.Refused != nil {
					out = append(out, x)
				}
			}
			return out
		}
		w.until("a refusal", func() bool { return len(refusals()) > i })
		if r := refusals()[i].Refused; r.Status != c.status || r.Field != c.field || r.Detail == "" {
			t.Errorf("%s: %+v", c.text, r)
		}
	}
	q := w.watches("news")
	if a := q.answered(func(t playerMessage) bool { return t.Refused != nil }); a.Refused.Status != http.StatusServiceUnavailable {
		t.Errorf("%+v", a)
	}
	if err := p.conn.Write(t.Context(), websocket.MessageText, []byte(strings.Repeat(" ", maxChange+1))); err != nil {
		t.Error(err)
	}
	w.until("the end of who sends too much", func() bool { return w.count() == 0 })
}

// TestWebSocketPlayerThatStalls checks that a player that reads nothing is removed.
func TestWebSocketPlayerThatStalls(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Times.Silence = time.Second }, "news")
	conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /ws/news HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MTIzNDU2Nzg5MDEyMzQ1Ng==\r\nSec-WebSocket-Protocol: %s\r\n\r\n", webSocketProtocol)
	w.until("a viewer", func() bool { return len(w.live()) == 1 })
	w.until("nobody", func() bool { return w.count() == 0 })
}

// TestQueueHolds checks that a player's queue is bounded, and that skipped pictures are skipped
// until a key frame.
func TestQueueHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, now := newQueue(), time.Unix(1_700_000_000, 0)
		serial, last, texts := int64(0), int64(0), 0
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "ms")) * time.Millisecond)
			switch rapid.SampledFrom([]string{"put", "put", "key", "sound", "tell", "take", "take"}).Draw(t, "step") {
			case "put":
				serial++
				q.put(message{data: make([]byte, rapid.IntRange(1, 1<<20).Draw(t, "size")), picture: true, at: now.Add(time.Duration(serial))})
			case "key":
				serial++
				q.put(message{data: make([]byte, 1000), picture: true, key: true, at: now.Add(time.Duration(serial))})
			case "sound":
				q.put(message{data: make([]byte, 100), at: now.Add(time.Duration(serial))})
			case "tell":
				if q.putText([]byte("x")) {
					texts++
				}
			case "take":
				m, ok := q.pop()
				switch {
				case !ok:
				case m.text:
					texts--
				case m.picture:
					n := m.at.UnixNano() % 1e6
					if !m.key && n != last+1 {
						t.Fatalf("picture %d after %d", n, last)
					}
					last = n
				}
			}
			if q.bytes > maxQueuedBytes || q.texts != texts || texts > maxQueuedTexts {
				t.Fatalf("%d bytes and %d texts, %d of them known, wait", q.bytes, q.texts, texts)
			}
		}
	})
}

// FuzzPlayerRequest checks that any message of a player is understood, or refused with the
// field.
func FuzzPlayerRequest(f *testing.F) {
	f.Add(`{"request": 1, "channel": "news", "password": "x"}`)
	f.Add(`{"request": 1, "again": true}`)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := parsePlayerRequest([]byte(text))
		if err != nil {
			if r := asRefusal(err); r.Status >= 500 || r.Field == "" || r.Detail == "" {
				t.Errorf("%+v", r)
			}
			return
		}
		if a.Request == 0 || a.Again == (a.Channel != "") || len(a.Password) > maxPassword {
			t.Errorf("%+v", a)
		}
	})
}
