package egress

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/services/cinema/candidates"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// maxSections bounds the media sections of an offer.
const maxSections = 8

// peer is the WebRTC connection to a viewer's player.
type peer struct {
	pc           *webrtc.PeerConnection
	external     []netip.AddrPort // of transport
	video, audio *webrtc.TrackLocalStaticRTP
	answer       webrtc.SessionDescription
	// playoutDelayID is the extension identifier of playoutDelay; zero if the player does not
	// support it.
	playoutDelayID uint8
}

// accept creates a peer for an offer. The peer does nothing until it is started.
func (t *transport) accept(offer string, v *viewer) (*peer, error) {
	if err := checkOffer(offer); err != nil {
		return nil, err
	}
	pc, err := t.api.NewPeerConnection(webrtc.Configuration{Certificates: []webrtc.Certificate{t.certificate}})
	if err != nil {
		return nil, fmt.Errorf("peer connection: %w", err)
	}
	p := &peer{pc: pc, external: t.external}
	if err := p.negotiate(offer, v); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// checkOffer validates an offer before anything is created for it. It counts the media sections in the
// parsed offer and not in the text, because only the parser knows what ends a line.
func checkOffer(offer string) error {
	var s sdp.SessionDescription
	if err := s.UnmarshalString(offer); err != nil {
		return offerError(err)
	}
	if n := len(s.MediaDescriptions); n == 0 || n > maxSections {
		return newRefusal(http.StatusBadRequest, "body", "an SDP offer with %d media sections: want 1 to %d", n, maxSections)
	}
	return nil
}

func (p *peer) negotiate(offer string, v *viewer) (err error) {
	var senders []*webrtc.RTPSender
	for _, x := range []struct {
		track **webrtc.TrackLocalStaticRTP
		codec webrtc.RTPCodecCapability
		kind  string
	}{{&p.video, videoCodec, "video"}, {&p.audio, audioCodec, "audio"}} {
		if *x.track, err = webrtc.NewTrackLocalStaticRTP(x.codec, x.kind, "sluice"); err != nil {
			return fmt.Errorf("%s track: %w", x.kind, err)
		}
		t, err := p.pc.AddTransceiverFromTrack(*x.track, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionSendonly})
		if err != nil {
			return fmt.Errorf("%s track: %w", x.kind, err)
		}
		senders = append(senders, t.Sender())
	}
	if err := p.pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeOffer, SDP: offer}); err != nil {
		return offerError(err)
	}
	if p.answer, err = p.pc.CreateAnswer(nil); err != nil {
		return offerError(err)
	}
	if err := checkAnswer(p.answer.SDP); err != nil {
		return err
	}
	for _, x := range senders[0].GetParameters().HeaderExtensions {
		if x.URI == playoutDelay {
			p.playoutDelayID = uint8(x.ID)
		}
	}
	p.pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		switch s {
		case webrtc.PeerConnectionStateConnected:
			v.connect(time.Now())
		case webrtc.PeerConnectionStateFailed:
			v.g.endViewer(v, "nothing comes from it any more")
		case webrtc.PeerConnectionStateClosed:
			v.g.endViewer(v, "it has closed its connection")
		}
	})
	for _, s := range senders {
		v.tasks.Start(func(context.Context) { v.readRTCP(s) })
	}
	return nil
}

// checkAnswer returns an error unless an answer contains video of the house format, in which all
// channels are sent (videoCodec in transport.go).
func checkAnswer(answer string) error {
	var s sdp.SessionDescription
	if err := s.Unmarshal([]byte(answer)); err != nil {
		return fmt.Errorf("own answer: %w", err)
	}
	if !slices.ContainsFunc(s.MediaDescriptions, func(m *sdp.MediaDescription) bool {
		_, sends := m.Attribute("sendonly")
		return m.MediaName.Media == "video" && m.MediaName.Port.Value != 0 && sends
	}) {
		return errNoVideo
	}
	return nil
}

// errNoVideo refuses an offer without a section for the house format.
var errNoVideo = newRefusal(http.StatusUnprocessableEntity, "body", "the offer receives no video that is sent here: want recvonly H.264, profile-level-id=42e01f;packetization-mode=1")

// offerError converts an error that an offer has caused to a refusal.
func offerError(err error) error {
	if errors.Is(err, webrtc.ErrSenderWithNoCodecs) {
		return errNoVideo
	}
	return newRefusal(http.StatusBadRequest, "body", "not an SDP offer that can be answered: %v", err)
}

// start makes the peer wait for its player, and returns the answer to the offer.
func (p *peer) start(ctx context.Context) (string, error) {
	gathered := webrtc.GatheringCompletePromise(p.pc)
	if err := p.pc.SetLocalDescription(p.answer); err != nil {
		return "", offerError(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	select {
	case <-gathered:
		return candidates.Replace(p.pc.LocalDescription().SDP, p.external)
	case <-ctx.Done():
		return "", fmt.Errorf("addresses of the media transport: %w", context.Cause(ctx))
	}
}

// readRTCP reads the player's RTCP packets and handles its requests for a key frame. The reports must be
// read although it ignores them, because otherwise WebRTC's interceptors do not see them.
func (v *viewer) readRTCP(s *webrtc.RTPSender) {
	b := make([]byte, 1500)
	for {
		n, _, err := s.Read(b)
		if err != nil {
			return
		}
		packets, err := rtcp.Unmarshal(b[:n])
		if err != nil {
			continue // an invalid report harms only its sender
		}
		for _, p := range packets {
			switch p.(type) {
			case *rtcp.PictureLossIndication, *rtcp.FullIntraRequest:
				v.requestRefresh(time.Now())
			}
		}
	}
}

// noDelay tells the player to show each picture as soon as it is decoded.
var noDelay = []byte{0, 0, 0}

// send sends a packet to the player. It ignores errors: if the connection fails, its state changes.
func (p *peer) send(o media.Out) {
	out := &rtp.Packet{
		Header:  rtp.Header{Version: 2, Marker: o.Marker, SequenceNumber: o.Sequence, Timestamp: o.Timestamp},
		Payload: o.Payload,
	}
	track := p.audio
	if o.Video() {
		track = p.video
		if p.playoutDelayID != 0 {
			_ = out.SetExtension(p.playoutDelayID, noDelay) // the length is valid for any extension
		}
	}
	_ = track.WriteRTP(out)
}

// close closes the connection and waits for its goroutines.
func (p *peer) close() { _ = p.pc.GracefulClose() }
