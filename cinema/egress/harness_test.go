package egress

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/webrtc/v4"
	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/cinema/gatewayapi"
	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/service/control"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// world is a gateway, a controller that is none, and channels whose packets it has copied.
type world struct {
	t testing.TB
	*Gateway
	url string
	log *lockedLog
	end func() // of the gateway

	mu       sync.Mutex
	studios  map[string]*studio
	wants    []gatewayapi.Wanted
	away     bool // the controller does not answer
	lines    gatewayapi.Lineup
	password string // of channels that are protected
	full     int    // for so many channels of a viewer, and more, its port has no room; 0: it has
}

type lockedLog struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *lockedLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

// newWorld starts a gateway with channels of these names.
func newWorld(t testing.TB, change func(*Config), names ...string) *world {
	t.Helper()
	w := &world{t: t, studios: map[string]*studio{}, log: &lockedLog{}, password: "sesame"}
	for i, name := range names {
		w.studios[name] = newStudio(t, uint16(i+1))
		w.lines.Channels = append(w.lines.Channels, gatewayapi.Listed{Name: name, Number: uint16(i + 1), Title: strings.ToUpper(name), OnAir: gatewayapi.OnAirLive})
	}
	cfg := Config{
		Name: "west", Log: slog.New(slog.NewTextHandler(w.log, nil)), Data: netip.MustParseAddr("127.0.0.1"),
		Ports: control.PortRange{First: 30000, Last: 34095}, Media: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		MaxViewers: 10, MaxPerAddress: 10, Burst: true, Controller: w, Times: DefaultTimes(),
	}
	cfg.Times.Poll = 20 * time.Millisecond
	if change != nil {
		change(&cfg)
	}
	inside, outside := listenLocal(t), listenLocal(t)
	w.url = "http://" + outside.Addr().String()
	cfg.URL = w.url
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.Gateway = g
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, inside, outside) }()
	w.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		w.end()
		http.DefaultClient.CloseIdleConnections()
		if text := w.log.text(); strings.Contains(text, w.password) {
			t.Errorf("a password in the log: %s", text)
		}
	})
	w.until("the lineup", func() bool { return g.lineup.Load() != nil })
	return w
}

func listenLocal(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// until polls for something that is to be within ten seconds.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !is(); <-tick.C {
		if time.Now().After(end) {
			w.t.Fatalf("waited in vain for %s: %s", what, w.log.text())
		}
	}
}

// Lineup implements Controller.
func (w *world) Lineup(ctx context.Context) (gatewayapi.Lineup, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return gatewayapi.Lineup{}, client.ErrUnreachable
	}
	l := w.lines
	l.Channels, l.Gateways = slices.Clone(l.Channels), slices.Clone(l.Gateways)
	return l, nil
}

// Thumbnail implements Controller.
func (w *world) Thumbnail(_ context.Context, channel string) (gatewayapi.Thumbnail, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		return gatewayapi.Thumbnail{}, client.ErrUnreachable
	}
	return gatewayapi.Thumbnail{JPEG: []byte("picture of " + channel)}, nil
}

// Wanted implements Controller.
func (w *world) Wanted(ctx context.Context, x gatewayapi.Wanted) (gatewayapi.Granted, error) {
	w.mu.Lock()
	away, full := w.away, w.full > 0 && len(x.Channels) >= w.full
	w.wants = append(w.wants, x)
	w.mu.Unlock()
	if away {
		<-ctx.Done()
		return gatewayapi.Granted{}, fmt.Errorf("%w: %w", client.ErrUnreachable, ctx.Err())
	}
	if full {
		return gatewayapi.Granted{}, problem(http.StatusConflict, "body.gateway")
	}
	granted := gatewayapi.Granted{}
	for i, name := range x.Channels {
		s := w.studios[name]
		if s == nil {
			return granted, problem(http.StatusUnprocessableEntity, fmt.Sprintf("body.channels[%d]", i))
		}
		if s.protected && i == 0 && x.Password != w.password && !s.has(x.Port) {
			return granted, problem(http.StatusForbidden, "body.password")
		}
		if !s.nowhere {
			granted.Channels = append(granted.Channels, gatewayapi.Source{Channel: name, From: s.from})
		}
	}
	for name, s := range w.studios {
		s.copyTo(x.Port, slices.Contains(x.Channels, name), x.Burst && name == x.Channels[0])
	}
	return granted, nil
}

func problem(status int, field string) error {
	return &client.Problem{Status: status, Title: http.StatusText(status), Errors: []client.Field{{Location: field, Message: "wrong"}}}
}

func (w *world) wanted() [][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out [][]string
	for _, x := range w.wants {
		out = append(out, x.Channels)
	}
	return out
}

// fill leaves the gateway's port no room for so many channels of a viewer.
func (w *world) fill(channels int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.full = channels
}

func (w *world) leaves(away bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

// studio makes a channel, and copies it as switches do.
type studio struct {
	socket    *net.UDPConn
	from      netip.AddrPort
	protected bool
	nowhere   bool // no ingress gateway has it

	mu     sync.Mutex
	ports  map[uint16]bool
	group  *media.Cache
	silent bool // nothing but sound: no key frame
	lose   float64
	lost   int
	bursts int
	rand   *rand.Rand
}

// gop is how many pictures a group of the channels has: 800 ms.
const gop = 20

// ingress is the address from which channels come: of this process alone, whoever else tests.
var ingress = netip.AddrFrom4([4]byte{127, 77, byte(os.Getpid() >> 8), byte(os.Getpid())})

func newStudio(t testing.TB, number uint16) *studio {
	t.Helper()
	at := netip.AddrPortFrom(ingress, gatewayapi.SourcePort(number))
	socket, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	s := &studio{socket: socket, from: at, ports: map[uint16]bool{}, group: media.NewCache(group), rand: rand.New(rand.NewPCG(1, uint64(number)))}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); s.film(stop, number) }()
	t.Cleanup(func() { close(stop); <-done; socket.Close() })
	return s
}

// film sends a picture each 40 ms, each in two packets or more, and sound each 20 ms.
func (s *studio) film(stop chan struct{}, number uint16) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	video, audio := number*5000, number*777
	for n := uint32(int(number) * 7); ; n++ {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		audio++
		s.send(rtpPacket(media.AudioType, true, audio, n*960, uint32(number)*2, 0xfc, byte(number)))
		if n%2 != 0 {
			continue
		}
		parts := [][]byte{{0x41, 0x80, byte(number)}, bytes.Repeat([]byte{0x41}, 900)}
		if n/2%gop == 0 {
			parts = [][]byte{{0x67, 0x42, byte(number)}, {0x68, 0xce, byte(number)}, bytes.Repeat([]byte{0x65}, 1100)}
		}
		for i, p := range parts {
			video++
			s.send(rtpPacket(media.VideoType, i == len(parts)-1, video, n*1800, uint32(number)*2+1, p...))
		}
	}
}

func rtpPacket(kind uint8, marker bool, sequence uint16, stamp, ssrc uint32, payload ...byte) []byte {
	b := []byte{0x80, kind, byte(sequence >> 8), byte(sequence)}
	if marker {
		b[1] |= 0x80
	}
	for _, x := range []uint32{stamp, ssrc} {
		b = append(b, byte(x>>24), byte(x>>16), byte(x>>8), byte(x))
	}
	return append(b, payload...)
}

func (s *studio) send(raw []byte) {
	p, err := media.Parse(raw)
	if err != nil {
		panic(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.silent && p.Video() {
		return
	}
	s.group.Add(p, raw, time.Now())
	for port := range s.ports {
		s.to(port, raw)
	}
}

// to sends a datagram, or loses it. s.mu is held.
func (s *studio) to(port uint16, raw []byte) {
	if s.rand.Float64() < s.lose {
		s.lost++
		return
	}
	_, _ = s.socket.WriteToUDPAddrPort(raw, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port))
}

func (s *studio) has(port uint16) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[port]
}

// loses has the network lose some of the datagrams.
func (s *studio) loses(share float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lose = share
}

// counts says how many datagrams were lost, and how many bursts were asked for.
func (s *studio) counts() (lost, bursts int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost, s.bursts
}

// copyTo has a viewer's port get the channel or not, and a burst if it is asked for.
func (s *studio) copyTo(port uint16, on, burst bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on && burst {
		s.bursts++
		for _, raw := range s.group.Group() {
			s.to(port, raw)
		}
	}
	if on {
		s.ports[port] = true
	} else {
		delete(s.ports, port)
	}
}

func (s *studio) falls(silent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent = silent
	if silent {
		s.group.Clear()
	}
}

// ask sends a request and returns the answer with its body.
func (w *world) ask(method, path, kind, body string, header ...string) (*http.Response, string) {
	w.t.Helper()
	url := path
	if strings.HasPrefix(path, "/") {
		url = w.url + path
	}
	req, err := http.NewRequestWithContext(w.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res, string(text)
}

// player is a viewer's browser.
type player struct {
	*world
	pc      *webrtc.PeerConnection
	session string

	mu     sync.Mutex
	got    map[string][]got // by kind of track
	failed []string
}

// got is a packet as the player gets it.
type got struct {
	sequence  uint16
	timestamp uint32
	nal, from byte
	at        time.Time
}

// joins has a player see a channel.
func (w *world) joins(channel string, header ...string) *player {
	w.t.Helper()
	p := w.newPlayerThatJoins(channel, header...)
	w.until("a picture", func() bool { return len(p.packets("video")) > 0 })
	return p
}

// newPlayer returns one that has not asked for anything.
func (w *world) newPlayer(s webrtc.SettingEngine) *player {
	w.t.Helper()
	s.SetIncludeLoopbackCandidate(true)
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	m := &webrtc.MediaEngine{}
	if err := m.RegisterDefaultCodecs(); err != nil {
		w.t.Fatal(err)
	}
	pc, err := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithSettingEngine(s)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		w.t.Fatal(err)
	}
	p := &player{world: w, pc: pc, got: map[string][]got{}}
	w.t.Cleanup(p.closes)
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		if _, err := pc.AddTransceiverFromKind(kind, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}); err != nil {
			w.t.Fatal(err)
		}
	}
	pc.OnTrack(p.plays)
	return p
}

func (p *player) closes() { _ = p.pc.GracefulClose() }

func (p *player) offer() string {
	p.t.Helper()
	gathered := webrtc.GatheringCompletePromise(p.pc)
	offer, err := p.pc.CreateOffer(nil)
	if err == nil {
		err = p.pc.SetLocalDescription(offer)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	<-gathered
	return p.pc.LocalDescription().SDP
}

func (p *player) accept(res *http.Response, answer string) {
	p.t.Helper()
	p.session = res.Header.Get("Location")
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}); err != nil {
		p.t.Fatalf("%v: %s", err, answer)
	}
}

// plays takes what comes, and notes what no player could play.
func (p *player) plays(track *webrtc.TrackRemote, _ *webrtc.RTPReceiver) {
	kind := track.Kind().String()
	for {
		x, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		g := got{sequence: x.SequenceNumber, timestamp: x.Timestamp, nal: x.Payload[0], at: time.Now()}
		if len(x.Payload) < 10 {
			g.from = x.Payload[len(x.Payload)-1]
		}
		p.mu.Lock()
		if all := p.got[kind]; len(all) > 0 {
			last := all[len(all)-1]
			if g.sequence != last.sequence+1 || int32(g.timestamp-last.timestamp) < 0 {
				p.failed = append(p.failed, fmt.Sprintf("%s: after %d at %d comes %d at %d", kind, last.sequence, last.timestamp, g.sequence, g.timestamp))
			}
		}
		p.got[kind] = append(p.got[kind], g)
		p.mu.Unlock()
	}
}

func (p *player) packets(kind string) []got {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got[kind])
}

// hears says of which channel the last sound is that has come.
func (p *player) hears() byte {
	all := p.packets("audio")
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].from
}

// continuous fails if anything came that is not continuous.
func (p *player) continuous() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.failed {
		p.t.Error(f)
	}
}

// changes asks for another channel, and returns the zap time.
func (p *player) changes(channel string, header ...string) (time.Duration, int, string) {
	p.t.Helper()
	body, err := json.Marshal(map[string]string{"channel": channel})
	if err != nil {
		p.t.Fatal(err)
	}
	res, text := p.ask(http.MethodPut, p.session+"/channel", "application/json", string(body), header...)
	var z zapped
	if res.StatusCode == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &z); err != nil {
			p.t.Fatal(err)
		}
	}
	return time.Duration(z.Zap), res.StatusCode, text
}

// newPlayerThatJoins has a player see a channel that may have no picture yet.
func (w *world) newPlayerThatJoins(channel string, header ...string) *player {
	w.t.Helper()
	p := w.newPlayer(webrtc.SettingEngine{})
	res, text := w.ask(http.MethodPost, "/whep/"+channel, "application/sdp", p.offer(), header...)
	if res.StatusCode != http.StatusCreated || res.Header.Get("Content-Type") != "application/sdp" {
		w.t.Fatalf("%s: %s", res.Status, text)
	}
	p.accept(res, text)
	w.until("a connection", func() bool { return p.pc.ConnectionState() == webrtc.PeerConnectionStateConnected })
	return p
}
