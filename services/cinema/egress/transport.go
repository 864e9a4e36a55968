package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/interceptor/pkg/report"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/services/cinema/media"
)

// resendPackets is how many packets are kept for retransmission; it is a power of two.
const resendPackets = 1024

// transport holds what the WebRTC connections of all viewers share: one UDP port on each address, and
// one certificate.
type transport struct {
	api         *webrtc.API
	mux         *ice.MultiUDPMuxDefault
	certificate webrtc.Certificate
	// external holds the addresses that answers name in the place of those of mux. It is empty unless
	// the gateway is behind NAT.
	external []netip.AddrPort
}

func newTransport(cfg Config) (*transport, error) {
	engine, err := codecs()
	if err != nil {
		return nil, err
	}
	senders, err := interceptors()
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key of the media transport: %w", err)
	}
	certificate, err := webrtc.GenerateCertificate(key)
	if err != nil {
		return nil, fmt.Errorf("certificate of the media transport: %w", err)
	}
	logs := &logFactory{log: cfg.Log}
	mux, external, err := listenMedia(cfg, logs)
	if err != nil {
		return nil, err
	}
	s := settings(cfg, mux)
	s.LoggerFactory = logs
	return &transport{
		api: webrtc.NewAPI(webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(senders), webrtc.WithSettingEngine(s)),
		mux: mux, certificate: *certificate, external: external,
	}, nil
}

// listenMedia opens the UDP ports for viewers. If the machine does not have an address of cfg.Media, the
// address is taken for that of a NAT before the machine. Then external holds the addresses that answers are
// to name; and if the machine has none of the addresses, listenMedia opens the ports at that of cfg.Public.
func listenMedia(cfg Config, logs *logFactory) (mux *ice.MultiUDPMuxDefault, external []netip.AddrPort, err error) {
	var all []ice.UDPMux
	defer func() {
		if err != nil {
			for _, m := range all {
				_ = m.Close()
			}
		}
	}()
	listen := func(at netip.AddrPort) error {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			return fmt.Errorf("ice: %w", err)
		}
		enlargeReceiveBuffer(c)
		all = append(all, ice.NewUDPMuxDefault(ice.UDPMuxParams{Logger: logs.NewLogger("ice"), UDPConn: c}))
		return nil
	}
	for _, at := range cfg.Media {
		switch err := listen(at); {
		case errors.Is(err, syscall.EADDRNOTAVAIL):
			external = cfg.Media
			cfg.Log.Warn("viewers are told an address that this machine does not have: NAT must forward its UDP port to this machine", "address", at)
		case err != nil:
			return nil, nil, err
		}
	}
	if len(all) == 0 {
		inside, err := insideAddresses(cfg)
		if err != nil {
			return nil, nil, err
		}
		for _, at := range inside {
			if err := listen(at); err != nil {
				return nil, nil, err
			}
		}
	}
	return ice.NewMultiUDPMuxDefault(all...), external, nil
}

// insideAddresses returns the addresses at which a gateway behind NAT listens for viewers' media: that of
// cfg.Public or, if that is unspecified, all of the machine. Link-local addresses are not among them,
// because they cannot be bound while they are tentative.
func insideAddresses(cfg Config) (inside []netip.AddrPort, err error) {
	port := cfg.Media[0].Port()
	public, err := netip.ParseAddrPort(cfg.Public)
	if err != nil {
		return nil, fmt.Errorf("ice: public address: %w", err)
	}
	if !public.Addr().IsUnspecified() {
		return []netip.AddrPort{netip.AddrPortFrom(public.Addr(), port)}, nil
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("ice: %w", err)
	}
	for _, x := range all {
		if p, err := netip.ParsePrefix(x.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			inside = append(inside, netip.AddrPortFrom(p.Addr(), port))
		}
	}
	return inside, nil
}

// settings returns the settings of WebRTC for a gateway that waits for its viewers at its own
// addresses. The gateway is an ICE "lite" agent (RFC 8445, section 2.5). So it sends nothing to an
// address that has not shown the session's credentials, whatever an offer says.
func settings(cfg Config, mux ice.UDPMux) webrtc.SettingEngine {
	var s webrtc.SettingEngine
	s.SetLite(true)
	s.SetICEUDPMux(mux)
	s.SetIncludeLoopbackCandidate(true)
	s.SetICEMulticastDNSMode(ice.MulticastDNSModeDisabled)
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4, webrtc.NetworkTypeUDP6})
	s.SetICETimeouts(cfg.Times.Silence/2, cfg.Times.Silence/2, time.Second)
	return s
}

func (t *transport) close() { _ = t.mux.Close() }

// playoutDelay is the URI of a header extension that says how long a player may delay a picture.
// Without it, Chromium mistakes the pictures of a burst, which arrive at once, for jitter, and delays
// the pictures that follow more and more.
const playoutDelay = "http://www.webrtc.org/experiments/rtp-hdrext/playout-delay"

// The codecs of the house format, in which all channels are sent, in terms of SDP.
var (
	videoCodec = webrtc.RTPCodecCapability{
		MimeType: webrtc.MimeTypeH264, ClockRate: media.VideoClock,
		SDPFmtpLine: "level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f",
		RTCPFeedback: []webrtc.RTCPFeedback{
			{Type: webrtc.TypeRTCPFBNACK}, {Type: webrtc.TypeRTCPFBNACK, Parameter: "pli"}, {Type: webrtc.TypeRTCPFBCCM, Parameter: "fir"},
		},
	}
	audioCodec = webrtc.RTPCodecCapability{
		MimeType: webrtc.MimeTypeOpus, ClockRate: media.AudioClock, Channels: 2, SDPFmtpLine: "minptime=10;useinbandfec=1",
	}
)

func codecs() (*webrtc.MediaEngine, error) {
	e := &webrtc.MediaEngine{}
	err := e.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: videoCodec, PayloadType: media.VideoType}, webrtc.RTPCodecTypeVideo)
	if err == nil {
		err = e.RegisterCodec(webrtc.RTPCodecParameters{RTPCodecCapability: audioCodec, PayloadType: media.AudioType}, webrtc.RTPCodecTypeAudio)
	}
	if err == nil {
		err = e.RegisterHeaderExtension(webrtc.RTPHeaderExtensionCapability{URI: playoutDelay}, webrtc.RTPCodecTypeVideo, webrtc.RTPTransceiverDirectionSendonly)
	}
	if err != nil {
		return nil, fmt.Errorf("codecs: %w", err)
	}
	return e, nil
}

// interceptors returns the interceptors that retransmit packets on request and send sender
// reports.
func interceptors() (*interceptor.Registry, error) {
	r := &interceptor.Registry{}
	again, err := nack.NewResponderInterceptor(nack.ResponderSize(resendPackets))
	if err != nil {
		return nil, fmt.Errorf("nack: %w", err)
	}
	reports, err := report.NewSenderInterceptor()
	if err != nil {
		return nil, fmt.Errorf("sender reports: %w", err)
	}
	r.Add(again)
	r.Add(reports)
	return r, nil
}
