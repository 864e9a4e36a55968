package egress

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"net"
	"time"

	"github.com/pion/ice/v4"
	"github.com/pion/interceptor"
	"github.com/pion/interceptor/pkg/nack"
	"github.com/pion/interceptor/pkg/report"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/cinema/media"
)

// resendPackets is how many packets are kept for players that miss one; a power of two.
const resendPackets = 1024

// transport is what the peers of all viewers share: one UDP port on each address, and one
// certificate.
type transport struct {
	api         *webrtc.API
	mux         *ice.MultiUDPMuxDefault
	certificate webrtc.Certificate
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
	mux, err := listenMedia(cfg, logs)
	if err != nil {
		return nil, err
	}
	s := settings(cfg, mux)
	s.LoggerFactory = logs
	return &transport{
		api: webrtc.NewAPI(webrtc.WithMediaEngine(engine), webrtc.WithInterceptorRegistry(senders), webrtc.WithSettingEngine(s)),
		mux: mux, certificate: *certificate,
	}, nil
}

// listenMedia opens the ports at which viewers reach the gateway.
func listenMedia(cfg Config, logs *logFactory) (*ice.MultiUDPMuxDefault, error) {
	var all []ice.UDPMux
	for _, at := range cfg.Media {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		if err != nil {
			for _, m := range all {
				_ = m.Close()
			}
			return nil, fmt.Errorf("ice: %w", err)
		}
		roomy(c)
		all = append(all, ice.NewUDPMuxDefault(ice.UDPMuxParams{Logger: logs.NewLogger("ice"), UDPConn: c}))
	}
	return ice.NewMultiUDPMuxDefault(all...), nil
}

// settings have the gateway wait for its viewers at its own addresses. It is "lite" (RFC 8445,
// section 2.5): it sends nothing to an address from which nobody has shown the session's
// credentials, whatever an offer says.
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

// playoutDelay is a header extension that says how long a player may hold a picture back. Without
// it Chromium takes the pictures of a burst, which come at once, for jitter, and holds all that
// follow back by more and more.
const playoutDelay = "http://www.webrtc.org/experiments/rtp-hdrext/playout-delay"

// The house format, as SDP has it.
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

// interceptors send again what players miss, and report what was sent when.
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
