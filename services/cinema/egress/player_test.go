package egress

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pion/webrtc/v4"
)

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

// joins makes a player watch a channel.
func (w *world) joins(channel string, header ...string) *player {
	w.t.Helper()
	p := w.newPlayerThatJoins(channel, header...)
	w.until("a picture", func() bool { return len(p.packets("video")) > 0 })
	return p
}

// newPlayer returns a player that has not sent a request.
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
	p.session = "/whep/" + res.Header.Get("Location")
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}); err != nil {
		p.t.Fatalf("%v: %s", err, answer)
	}
}

// plays reads the packets, and records what no player could play: duplicates and packets out of
// order. A gap may be the loss of a slow machine; media.TestSplicerHolds proves that the
// gateway makes none.
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
			if int16(g.sequence-last.sequence) <= 0 || int32(g.timestamp-last.timestamp) < 0 {
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

// hears returns the channel of the last packet of sound.
func (p *player) hears() byte {
	all := p.packets("audio")
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].from
}

// continuous fails the test if there were duplicates or packets out of order.
func (p *player) continuous() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.failed {
		p.t.Error(f)
	}
}

// changes requests another channel, and returns the zap time.
func (p *player) changes(channel string, header ...string) (time.Duration, int, string) {
	p.t.Helper()
	body, err := json.Marshal(map[string]string{"channel": channel})
	if err != nil {
		p.t.Fatal(err)
	}
	res, text := p.ask(http.MethodPut, p.session+"/channel", "application/json", string(body), header...)
	var z changeResult
	if res.StatusCode == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &z); err != nil {
			p.t.Fatal(err)
		}
	}
	return time.Duration(z.Zap), res.StatusCode, text
}

// newPlayerThatJoins makes a player watch a channel that may have no picture yet.
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
