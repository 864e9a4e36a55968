package ingress

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/sdp/v3"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// SDP parameters of the house format (package media).
const (
	houseVideo = "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f"
	houseAudio = "minptime=10;useinbandfec=1"
)

// discardLogs discards the WebRTC library's log, because anybody can fill it.
var discardLogs = &logging.DefaultLoggerFactory{Writer: io.Discard, DefaultLogLevel: logging.LogLevelDisabled}

// openMux opens the UDP port that all sessions share.
func openMux(at netip.AddrPort) (ice.UDPMux, error) {
	if at.Addr().IsUnspecified() {
		// A link-local address is useless beyond its link, and cannot be bound while it is
		// tentative.
		return ice.NewMultiUDPMuxFromPort(int(at.Port()), ice.UDPMuxFromPortWithLogger(discardLogs.NewLogger("ice")),
			ice.UDPMuxFromPortWithIPFilter(func(ip net.IP) bool { return !ip.IsLinkLocalUnicast() }))
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(2 << 20) // up to the kernel's limit
	return ice.NewUDPMuxDefault(ice.UDPMuxParams{Logger: discardLogs.NewLogger("ice"), UDPConn: conn}), nil
}

// newAPI returns the WebRTC API for sessions. It supports only the codecs of the house format, and only
// the UDP port that all sessions share.
func newAPI(mux ice.UDPMux, at netip.Addr) (*webrtc.API, error) {
	m := &webrtc.MediaEngine{}
	video := webrtc.RTPCodecParameters{
		PayloadType: media.VideoType,
		RTPCodecCapability: webrtc.RTPCodecCapability{
			MimeType: webrtc.MimeTypeH264, ClockRate: media.VideoClock, SDPFmtpLine: houseVideo,
			RTCPFeedback: []webrtc.RTCPFeedback{{Type: "ccm", Parameter: "fir"}, {Type: "nack", Parameter: "pli"}},
		},
	}
	audio := webrtc.RTPCodecParameters{
		PayloadType: media.AudioType,
		RTPCodecCapability: webrtc.RTPCodecCapability{
			MimeType: webrtc.MimeTypeOpus, ClockRate: media.AudioClock, Channels: 2, SDPFmtpLine: houseAudio,
		},
	}
	if err := m.RegisterCodec(video, webrtc.RTPCodecTypeVideo); err != nil {
		return nil, err
	}
	if err := m.RegisterCodec(audio, webrtc.RTPCodecTypeAudio); err != nil {
		return nil, err
	}
	r := &interceptor.Registry{}
	for _, add := range []func(*webrtc.MediaEngine, *interceptor.Registry) error{
		webrtc.ConfigureNack, webrtc.ConfigureTWCCSender,
		func(_ *webrtc.MediaEngine, r *interceptor.Registry) error { return webrtc.ConfigureRTCPReports(r) },
	} {
		if err := add(m, r); err != nil {
			return nil, err
		}
	}
	s := webrtc.SettingEngine{LoggerFactory: discardLogs}
	s.SetLite(true)
	s.SetICEUDPMux(mux)
	s.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6})
	s.SetIncludeLoopbackCandidate(at.IsLoopback())
	s.SetICETimeouts(5*time.Second, 10*time.Second, 2*time.Second)
	s.SetReceiveMTU(media.MaxDatagram)
	return webrtc.NewAPI(webrtc.WithMediaEngine(m), webrtc.WithInterceptorRegistry(r), webrtc.WithSettingEngine(s)), nil
}

// maxSections bounds the media sections of an offer.
const maxSections = 4

// needsAllLayers is the part of the User-Agent header by which OBS is known. OBS ends with an error unless
// the answer accepts all layers of its picture, though a server may accept only some (RFC 8853, 5.3.2).
const needsAllLayers = "OBS-Studio/"

// offer is a producer's offer, without the layers of its picture (simulcast). So the answer accepts one
// layer. Which one is up to the producer: it is the first one, or the one whose SSRC the offer declares.
type offer struct {
	sdp string
	// layers holds the attributes with which an answer accepts all layers. The producer then sends
	// all, of which the gateway uses one. Empty if the offer has no layers.
	layers []sdp.Attribute
}

// parseOffer validates an offer before anything is created for it.
func parseOffer(text string) (offer, error) {
	var s sdp.SessionDescription
	if err := s.UnmarshalString(text); err != nil {
		return offer{}, fmt.Errorf("not SDP: %w", err)
	}
	kinds := map[string]int{}
	for _, m := range s.MediaDescriptions {
		kinds[m.MediaName.Media]++
	}
	switch {
	case len(s.MediaDescriptions) > maxSections:
		return offer{}, fmt.Errorf("%d media sections, at most %d", len(s.MediaDescriptions), maxSections)
	case kinds["video"] != 1 || kinds["audio"] > 1:
		return offer{}, fmt.Errorf("%d sections of video and %d of audio, want one of video and at most one of audio", kinds["video"], kinds["audio"])
	}
	o := offer{}
	for _, m := range s.MediaDescriptions {
		o.layers = append(o.layers, acceptedLayers(m)...)
		m.Attributes = slices.DeleteFunc(m.Attributes, func(a sdp.Attribute) bool { return a.Key == "rid" || a.Key == "simulcast" })
	}
	b, err := s.Marshal()
	if err != nil {
		return offer{}, fmt.Errorf("not SDP: %w", err)
	}
	o.sdp = string(b)
	return o, nil
}

// acceptedLayers returns the attributes with which an answer accepts the layers of a section of an offer:
// their identifiers, and the extension of RTP's headers that has the identifier.
func acceptedLayers(m *sdp.MediaDescription) (all []sdp.Attribute) {
	simulcast, ok := m.Attribute("simulcast")
	if !ok {
		return nil
	}
	for _, a := range m.Attributes {
		switch {
		case a.Key == "rid":
			id, _, _ := strings.Cut(a.Value, " ")
			all = append(all, sdp.NewAttribute("rid", id+" recv"))
		case a.Key == "extmap" && (strings.HasSuffix(a.Value, " "+sdp.SDESRTPStreamIDURI) || strings.HasSuffix(a.Value, " "+sdp.SDESMidURI)):
			all = append(all, a)
		}
	}
	return append(all, sdp.NewAttribute("simulcast", "recv"+strings.TrimPrefix(simulcast, "send")))
}

// finishAnswer returns an error unless producer and gateway have agreed on the house format's video. It
// adds the bit rate that the producer's video may have, and the layers to accept, to the answer.
func (o offer) finishAnswer(text string, most units.Rate) (string, error) {
	var answer sdp.SessionDescription
	if err := answer.UnmarshalString(text); err != nil {
		return "", fmt.Errorf("answer: %w", err)
	}
	for _, m := range answer.MediaDescriptions {
		if m.MediaName.Media != "video" {
			continue
		}
		if m.MediaName.Port.Value == 0 {
			return "", fmt.Errorf("no video in common: want H.264 with %s", strings.ReplaceAll(houseVideo, ";", " "))
		}
		video, _ := splitRate(int64(most))
		m.Bandwidth = append(m.Bandwidth, sdp.Bandwidth{Type: "TIAS", Bandwidth: uint64(video)}, sdp.Bandwidth{Type: "AS", Bandwidth: uint64(video / 1000)})
		m.Attributes = append(m.Attributes, o.layers...)
	}
	b, err := answer.Marshal()
	return string(b), err
}
