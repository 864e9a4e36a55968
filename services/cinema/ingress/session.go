package ingress

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/services/cinema/candidates"
	"github.com/sluice-net/sluice/services/cinema/media"
)

const (
	// connectTimeout bounds the time until the first packet of a producer.
	connectTimeout = 15 * time.Second
	// connectGrace is how long a connecting producer does not count as silent.
	connectGrace = 3 * time.Second
	// producerTimeout is how long a producer may be silent before its session ends. Another
	// producer may replace the silent one earlier, after silenceTimeout.
	producerTimeout = 30 * time.Second
	// gatherTimeout bounds the time to gather the addresses for an answer.
	gatherTimeout = 5 * time.Second
	// keyFrameInterval is the least time between two requests for a key frame.
	keyFrameInterval = 2 * time.Second
)

var errPublished = errors.New("another producer publishes it; it can be replaced when it has been silent for 2 s")

// session is the WHIP session of a producer that publishes a channel.
type session struct {
	id     string // secret of the session's URL
	ch     *channel
	from   netip.Addr
	answer string
	pc     *webrtc.PeerConnection
	tasks  *tasks.Group // readers of its tracks
	cancel context.CancelCauseFunc
	ended  chan struct{} // closed when the session has released everything

	mu              sync.Mutex
	video           webrtc.SSRC // 0 before the first track
	sound           bool        // there is a track of sound
	since           time.Time
	receivedAt      time.Time // zero before the first packet
	keyFrameAskedAt time.Time // last request for a key frame
}

// errBFrames refuses a producer whose pictures are not sent in the order in which they are shown.
var errBFrames = errors.New("it sends B-frames, which viewers' browsers show in the wrong order: set the encoder's number of B-frames to 0")

// newSession creates a session for an offer. It replaces the channel's producer if that is
// silent. allLayers reports whether the answer must accept all layers of an offer with simulcast.
func (p *public) newSession(c *channel, from netip.Addr, text string, allLayers bool) (*session, error) {
	o, err := parseOffer(text)
	if err != nil {
		return nil, err
	}
	if !allLayers {
		o.layers = nil
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	s := &session{id: hex.EncodeToString(id), ch: c, from: from, tasks: tasks.New(), ended: make(chan struct{}), since: time.Now()}
	ctx, over := context.WithCancelCause(c.tasks.Context())
	s.cancel = over
	if err := c.claim(s); err != nil {
		over(nil)
		return nil, err
	}
	if err := s.negotiate(p, o); err != nil {
		over(nil)
		s.close()
		return nil, err
	}
	p.mu.Lock()
	p.sessions[s.id] = s
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		delete(p.sessions, s.id)
		p.mu.Unlock()
	}
	if !p.tasks.Start(func(context.Context) { defer s.close(); defer forget(); s.watch(ctx) }) {
		forget()
		over(nil)
		s.close()
		return nil, errors.New("the gateway ends")
	}
	return s, nil
}

// negotiate answers the offer.
func (s *session) negotiate(p *public, o offer) error {
	pc, err := p.api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	s.pc = pc
	pc.OnTrack(s.track)
	pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		if state == webrtc.PeerConnectionStateFailed || state == webrtc.PeerConnectionStateClosed {
			s.end("the connection is " + state.String())
		}
	})
	if err := pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: o.sdp}); err != nil {
		return fmt.Errorf("offer: %w", err)
	}
	answer, err := pc.CreateAnswer(nil)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetLocalDescription(answer); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	select {
	case <-gathered:
	case <-time.After(gatherTimeout):
		return fmt.Errorf("the gateway does not find its own addresses within %v", gatherTimeout)
	}
	text, err := o.finishAnswer(pc.LocalDescription().SDP, s.ch.currentSpec().BitRate)
	if err != nil {
		return err
	}
	s.answer, err = candidates.Replace(text, p.external)
	return err
}

// watch ends the session when it is overdue. It returns when the session has ended for any reason.
func (s *session) watch(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case now := <-t.C:
			if why := s.overdue(now); why != "" {
				s.end(why)
			}
		}
	}
	s.ch.logLimiter.Info(s.ch.log, "a producer is gone", "from", s.from, "why", context.Cause(ctx))
}

// overdue returns why the session must end, or "".
func (s *session) overdue(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.receivedAt.IsZero() && now.Sub(s.since) > connectTimeout:
		return fmt.Sprintf("nothing has come for %v", connectTimeout)
	case !s.receivedAt.IsZero() && now.Sub(s.receivedAt) > producerTimeout:
		return fmt.Sprintf("nothing has come for %v", producerTimeout)
	}
	return ""
}

// silent reports whether another producer may replace this one.
func (s *session) silent(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.receivedAt
	if last.IsZero() { // the producer is still connecting
		last = s.since.Add(connectGrace)
	}
	return now.Sub(last) > silenceTimeout
}

// end ends the session without waiting for it.
func (s *session) end(why string) { s.cancel(errors.New(why)) }

// close ends the session's connection and its tasks, and makes its channel free for another producer.
func (s *session) close() {
	s.tasks.Cancel()
	if s.pc != nil {
		_ = s.pc.GracefulClose()
	}
	s.tasks.Stop()
	s.ch.release(s)
	close(s.ended)
}

// track starts to read a track of the producer. It ends the session if the producer has a second track
// of the same kind.
func (s *session) track(t *webrtc.TrackRemote, r *webrtc.RTPReceiver) {
	kind := uint8(media.AudioType)
	s.mu.Lock()
	second := s.sound
	if t.Kind() == webrtc.RTPCodecTypeVideo {
		kind, second, s.video = media.VideoType, s.video != 0, t.SSRC()
	} else {
		s.sound = true
	}
	s.mu.Unlock()
	if second {
		s.end("it has a second track of " + t.Kind().String())
		return
	}
	shift := &atomic.Uint32{}
	s.tasks.Start(func(context.Context) { s.forward(t, kind, shift) })
	s.tasks.Start(func(context.Context) { s.forwardReports(r, shift) })
}

// forward feeds a track's packets to the channel until the connection ends. It sets the payload type of
// the house format (package media), makes timestamps continuous, and removes padding, extensions and
// contributing sources, which have a meaning only on the producer's connection. It stores the number that
// is added to timestamps in shift.
func (s *session) forward(t *webrtc.TrackRemote, kind uint8, shift *atomic.Uint32) {
	buf := make([]byte, media.MaxDatagram)
	times := timeline{second: int64(t.Codec().ClockRate), bits: 32}
	for {
		p, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		p.PayloadType = kind
		shift.Store(uint32(times.shift(picture, int64(p.Timestamp)))) // picture, because it has one medium only
		p.Timestamp += shift.Load()
		p.Padding, p.PaddingSize, p.Extension, p.Extensions, p.CSRC = false, 0, false, nil, nil
		p.ExtensionProfile = 0
		n, err := p.MarshalTo(buf)
		if err != nil {
			continue // longer than a datagram may be
		}
		if (media.Packet{Type: kind, Payload: p.Payload}).BSlice() {
			s.ch.recordRefusal(s.from, errBFrames)
			s.end(errBFrames.Error())
			return
		}
		s.touch()
		s.ch.feed(buf[:n])
	}
}

// touch records that a packet has arrived.
func (s *session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.receivedAt = time.Now()
}

// forwardReports feeds a track's sender reports to the channel until the connection ends. It adds shift to
// their timestamps, as forward does.
func (s *session) forwardReports(r *webrtc.RTPReceiver, shift *atomic.Uint32) {
	for {
		packets, _, err := r.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range packets {
			sr, ok := p.(*rtcp.SenderReport)
			if !ok {
				continue
			}
			plain := rtcp.SenderReport{SSRC: sr.SSRC, NTPTime: sr.NTPTime, RTPTime: sr.RTPTime + shift.Load(), PacketCount: sr.PacketCount, OctetCount: sr.OctetCount}
			if b, err := plain.Marshal(); err == nil {
				s.ch.feed(b)
			}
		}
	}
}

// askKeyFrame requests a key frame from the producer, at most once per keyFrameInterval.
func (s *session) askKeyFrame(now time.Time) {
	s.mu.Lock()
	video := s.video
	if video == 0 || now.Sub(s.keyFrameAskedAt) < keyFrameInterval {
		s.mu.Unlock()
		return
	}
	s.keyFrameAskedAt = now
	s.mu.Unlock()
	// The readers notice if the connection is gone.
	_ = s.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(video)}})
}

// publisher returns the session that publishes the channel, or nil.
func (c *channel) publisher() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// claim makes a session the channel's producer, if there is none or the present one is silent.
func (c *channel) claim(s *session) error {
	for {
		c.mu.Lock()
		old := c.session
		if old == nil {
			c.session, c.producer, c.sourceError = s, s.from.String(), ""
			c.mu.Unlock()
			return nil
		}
		c.mu.Unlock()
		if !old.silent(time.Now()) {
			return errPublished
		}
		old.end("another producer has taken its place")
		<-old.ended
	}
}

// release removes a session from the channel.
func (c *channel) release(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session, c.producer = nil, ""
	}
}
