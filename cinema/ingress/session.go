package ingress

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/cinema/media"
	"github.com/sluice-net/sluice/internal/tasks"
)

const (
	// connectTime is how long a producer may take until its first packet has come.
	connectTime = 15 * time.Second
	// connectGrace is how long it may take before that counts as silence.
	connectGrace = 3 * time.Second
	// quietTime ends a producer that has fallen silent; one that sends is there for as long as
	// it does. Another one may take its place after silence.
	quietTime = 30 * time.Second
	// gatherTime is how long an answer may take.
	gatherTime = 5 * time.Second
	// keyFrameEvery is how often a key frame is asked for at most.
	keyFrameEvery = 2 * time.Second
)

var errPublished = errors.New("another producer publishes it; it can be replaced when it has been silent for 2 s")

// session is a producer that publishes a channel.
type session struct {
	id     string // a secret
	ch     *channel
	from   netip.Addr
	answer string
	pc     *webrtc.PeerConnection
	tasks  *tasks.Group // its readers
	over   context.CancelCauseFunc
	ended  chan struct{} // closed when nothing of it is left

	mu    sync.Mutex
	video webrtc.SSRC // 0: none yet
	sound bool        // there is a track of it
	since time.Time
	heard time.Time // zero: not yet
	asked time.Time // for a key frame
}

// newSession makes a session of an offer, in the place of the channel's former producer if
// that is silent.
func (p *public) newSession(c *channel, from netip.Addr, offer string) (*session, error) {
	if err := checkOffer(offer); err != nil {
		return nil, err
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	s := &session{id: hex.EncodeToString(id), ch: c, from: from, tasks: tasks.New(), ended: make(chan struct{}), since: time.Now()}
	ctx, over := context.WithCancelCause(c.tasks.Context())
	s.over = over
	if err := c.claim(s); err != nil {
		over(nil)
		return nil, err
	}
	if err := s.negotiate(p.api, offer); err != nil {
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
func (s *session) negotiate(api *webrtc.API, offer string) error {
	pc, err := api.NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		return fmt.Errorf("session: %w", err)
	}
	s.pc = pc
	pc.OnTrack(s.track)
	pc.OnConnectionStateChange(func(is webrtc.PeerConnectionState) {
		if is == webrtc.PeerConnectionStateFailed || is == webrtc.PeerConnectionStateClosed {
			s.end("the connection is " + is.String())
		}
	})
	if err := pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
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
	case <-time.After(gatherTime):
		return fmt.Errorf("the gateway does not find its own addresses within %v", gatherTime)
	}
	s.answer, err = checkAnswer(pc.LocalDescription().SDP, s.ch.current().BitRate)
	return err
}

// watch waits until the session is over.
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
	s.ch.lines.Info(s.ch.log, "a producer is gone", "from", s.from, "why", context.Cause(ctx))
}

// overdue says why the session's time is over, if it is.
func (s *session) overdue(now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.heard.IsZero() && now.Sub(s.since) > connectTime:
		return fmt.Sprintf("nothing has come for %v", connectTime)
	case !s.heard.IsZero() && now.Sub(s.heard) > quietTime:
		return fmt.Sprintf("nothing has come for %v", quietTime)
	}
	return ""
}

// silent says whether another producer may take the place of this one.
func (s *session) silent(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.heard
	if last.IsZero() { // it is still connecting
		last = s.since.Add(connectGrace)
	}
	return now.Sub(last) > silence
}

// end has the session end; it does not wait for that.
func (s *session) end(why string) { s.over(errors.New(why)) }

// close gives back what the session has, and its place at the channel.
func (s *session) close() {
	s.tasks.Cancel()
	if s.pc != nil {
		_ = s.pc.GracefulClose()
	}
	s.tasks.Stop()
	s.ch.release(s)
	close(s.ended)
}

// track takes one of the producer's tracks, of which there may be one of each kind.
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
	s.tasks.Start(func(context.Context) { s.carry(t, kind) })
	s.tasks.Start(func(context.Context) { s.report(r) })
}

// carry sends a track's packets on until the connection ends, as the house has them: with the
// house's payload type, and without what only means something to the producer's connection.
func (s *session) carry(t *webrtc.TrackRemote, kind uint8) {
	buf := make([]byte, media.MaxDatagram)
	for {
		p, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		p.PayloadType = kind
		p.Padding, p.PaddingSize, p.Extension, p.Extensions, p.CSRC = false, 0, false, nil, nil
		p.ExtensionProfile = 0
		n, err := p.MarshalTo(buf)
		if err != nil {
			continue // longer than a datagram may be
		}
		s.hear()
		s.ch.feed(buf[:n])
	}
}

// hear notes that the producer is there.
func (s *session) hear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
}

// report sends a track's sender reports on until the connection ends.
func (s *session) report(r *webrtc.RTPReceiver) {
	for {
		packets, _, err := r.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range packets {
			sr, is := p.(*rtcp.SenderReport)
			if !is {
				continue
			}
			plain := rtcp.SenderReport{SSRC: sr.SSRC, NTPTime: sr.NTPTime, RTPTime: sr.RTPTime, PacketCount: sr.PacketCount, OctetCount: sr.OctetCount}
			if b, err := plain.Marshal(); err == nil {
				s.ch.feed(b)
			}
		}
	}
}

// askKeyFrame asks the producer for a key frame, not too often.
func (s *session) askKeyFrame(now time.Time) {
	s.mu.Lock()
	video := s.video
	if video == 0 || now.Sub(s.asked) < keyFrameEvery {
		s.mu.Unlock()
		return
	}
	s.asked = now
	s.mu.Unlock()
	// Of a connection that is gone the readers hear.
	_ = s.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: uint32(video)}})
}

// publisher is who publishes the channel now, or nil.
func (c *channel) publisher() *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// claim gives a session the channel's place for a producer, if it is free or the one that has
// it is silent.
func (c *channel) claim(s *session) error {
	for {
		c.mu.Lock()
		old := c.session
		if old == nil {
			c.session, c.producer, c.fault = s, s.from.String(), ""
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

// release gives the place back.
func (c *channel) release(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == s {
		c.session, c.producer = nil, ""
	}
}
