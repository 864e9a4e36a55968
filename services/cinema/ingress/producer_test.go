package ingress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"
	sample "github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/h264reader"
)

// producer publishes as a browser does.
type whipProducer struct {
	pc        *webrtc.PeerConnection
	layers    []*webrtc.TrackLocalStaticSample // of the picture, one without simulcast
	audio     *webrtc.TrackLocalStaticSample
	rewrite   func(offer string) string // changes the offer, unless it is nil
	asked     atomic.Int32              // requests for key frames
	connected chan struct{}
}

// newWHIPProducer returns a producer with a video codec and Opus. With rids, its picture has a layer for
// each.
func newWHIPProducer(t *testing.T, codec string, rids ...string) *whipProducer {
	t.Helper()
	s := webrtc.SettingEngine{LoggerFactory: discardLogs}
	s.SetIncludeLoopbackCandidate(true)
	m := &webrtc.MediaEngine{}
	if err := m.RegisterDefaultCodecs(); err != nil {
		t.Fatal(err)
	}
	if err := webrtc.ConfigureSimulcastExtensionHeaders(m); err != nil {
		t.Fatal(err)
	}
	pc, err := webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithSettingEngine(s)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	p := &whipProducer{pc: pc, connected: make(chan struct{})}
	t.Cleanup(func() {
		if err := pc.GracefulClose(); err != nil {
			t.Error(err)
		}
	})
	if p.audio, err = webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus}, "a", "s"); err != nil {
		t.Fatal(err)
	}
	p.addLayers(t, codec, rids)
	sender, err := pc.AddTrack(p.audio)
	if err != nil {
		t.Fatal(err)
	}
	go p.listen(sender)
	pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		if state == webrtc.PeerConnectionStateConnected {
			close(p.connected)
		}
	})
	return p
}

// addLayers adds the tracks of the picture.
func (p *whipProducer) addLayers(t *testing.T, codec string, rids []string) {
	t.Helper()
	var sender *webrtc.RTPSender
	for i := range max(len(rids), 1) {
		var options []func(*webrtc.TrackLocalStaticRTP)
		if len(rids) > 0 {
			options = append(options, webrtc.WithRTPStreamID(rids[i]))
		}
		layer, err := webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: codec}, "v", "s", options...)
		if err != nil {
			t.Fatal(err)
		}
		p.layers = append(p.layers, layer)
		if sender == nil {
			sender, err = p.pc.AddTrack(layer)
		} else {
			err = sender.AddEncoding(layer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	go p.listen(sender)
}

// listen counts the gateway's requests until the connection ends.
func (p *whipProducer) listen(s *webrtc.RTPSender) {
	for {
		packets, _, err := s.ReadRTCP()
		if err != nil {
			return
		}
		for _, x := range packets {
			if _, ok := x.(*rtcp.PictureLossIndication); ok {
				p.asked.Add(1)
			}
		}
	}
}

// offer returns the producer's offer.
func (p *whipProducer) offer(t *testing.T) string {
	t.Helper()
	offer, err := p.pc.CreateOffer(nil)
	if err != nil {
		t.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(offer); err != nil {
		t.Fatal(err)
	}
	<-gathered
	if text := p.pc.LocalDescription().SDP; p.rewrite == nil {
		return text
	} else {
		return p.rewrite(text)
	}
}

// post sends an offer.
func post(t *testing.T, g *Gateway, channel, password, offer string) (status int, location, body string) {
	t.Helper()
	return do(t, offerRequest(t, g, channel, password, offer))
}

// offerRequest returns a request that sends an offer.
func offerRequest(t *testing.T, g *Gateway, channel, password, offer string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.PublicURL()+"/whip/"+channel, strings.NewReader(offer))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/sdp")
	if password != "" {
		req.Header.Set("Authorization", "Bearer "+password)
	}
	return req
}

func do(t *testing.T, req *http.Request) (status int, location, body string) {
	t.Helper()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	res, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, res.Header.Get("Location"), string(b)
}

// publish connects a producer, and returns the path of its session.
func (p *whipProducer) publish(t *testing.T, g *Gateway, channel, password string) string {
	t.Helper()
	status, location, answer := post(t, g, channel, password, p.offer(t))
	if status != http.StatusCreated || !strings.HasPrefix(location, "sessions/") {
		t.Fatalf("%d %s: %s", status, location, answer)
	}
	if !strings.Contains(answer, "b=TIAS:") {
		t.Errorf("the answer does not say how much may be sent:\n%s", answer)
	}
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.connected:
	case <-time.After(time.Minute):
		t.Fatal("the producer does not connect")
	}
	return "/whip/" + location
}

// h264 returns pictures as a camera makes them, 20 a second, each as its units. The arguments change how
// ffmpeg encodes them.
func h264(t *testing.T, args ...string) [][]byte {
	t.Helper()
	needFFmpeg(t)
	all := []string{
		"-v", "error", "-f", "lavfi", "-i", "testsrc2=size=320x180:rate=20", "-t", "2",
		"-c:v", "libx264", "-profile:v", "baseline", "-tune", "zerolatency", "-threads", "1", "-g", "20", "-pix_fmt", "yuv420p", "-b:v", "300k",
		"-x264-params", "repeat-headers=1:aud=1", "-f", "h264",
	}
	out, err := exec.CommandContext(t.Context(), "ffmpeg", append(append(all, args...), "-")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	r, err := h264reader.NewReader(bytes.NewReader(out))
	if err != nil {
		t.Fatal(err)
	}
	var pictures [][]byte
	for {
		unit, err := r.NextNAL()
		if errors.Is(err, io.EOF) {
			return pictures
		}
		if err != nil {
			t.Fatal(err)
		}
		if unit.UnitType == h264reader.NalUnitTypeAUD {
			pictures = append(pictures, nil)
			continue
		}
		last := len(pictures) - 1
		pictures[last] = append(append(pictures[last], 0, 0, 0, 1), unit.Data...)
	}
}

// send sends pictures and sound until ctx ends.
func (p *whipProducer) send(ctx context.Context, t *testing.T, pictures [][]byte) {
	const each = 50 * time.Millisecond
	tick := time.NewTicker(each)
	defer tick.Stop()
	silentOpus := []byte{0xf8, 0xff, 0xfe}
	for i := 0; ; i++ {
		for _, layer := range p.layers {
			if err := layer.WriteSample(sample.Sample{Data: pictures[i%len(pictures)], Duration: each}); err != nil {
				t.Error(err)
				return
			}
		}
		for range 2 {
			if err := p.audio.WriteSample(sample.Sample{Data: silentOpus, Duration: each / 2}); err != nil {
				t.Error(err)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// run sends until stop is called.
func (p *whipProducer) run(t *testing.T, pictures [][]byte) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() { defer close(done); p.send(ctx, t, pictures) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}
