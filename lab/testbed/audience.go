package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pion/interceptor"
	"github.com/pion/logging"
	"github.com/pion/webrtc/v4"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab"
)

// Audience is a number of WebRTC clients at one host. They receive channels from an egress gateway
// but do not show them. Its methods must not be called concurrently.
type Audience struct {
	host    *lab.LiveHost
	url     string
	engine  *webrtc.MediaEngine
	client  *http.Client
	all     []member
	reading sync.WaitGroup

	bytes, packets, lost atomic.Uint64
}

// member is one client. Each has a socket of its own, because gateways identify viewers by the
// address from which they send.
type member struct {
	pc     *webrtc.PeerConnection
	socket *net.UDPConn
}

// Heard holds what all clients of an audience have received.
type Heard struct {
	// Bytes and Packets count RTP packets, headers included.
	Bytes, Packets uint64
	// Lost counts sequence numbers that were left out.
	Lost uint64
}

// connectWithin bounds the time until a client is connected.
const connectWithin = 10 * time.Second

// NewAudience returns an audience without clients. url is the gateway's public URL.
func NewAudience(host *lab.LiveHost, url string) (*Audience, error) {
	a := &Audience{host: host, url: url, engine: &webrtc.MediaEngine{}}
	if err := a.engine.RegisterDefaultCodecs(); err != nil {
		return nil, fmt.Errorf("audience at %s: %w", host.Name(), err)
	}
	a.client = &http.Client{Timeout: connectWithin, Transport: &http.Transport{DialContext: func(ctx context.Context, network, to string) (c net.Conn, err error) {
		err = host.Do(func() error {
			c, err = (&net.Dialer{}).DialContext(ctx, network, to)
			return err
		})
		return c, err
	}}}
	return a, nil
}

// add adds a client, which is not connected yet.
func (a *Audience) add() (*webrtc.PeerConnection, error) {
	var m member
	err := a.host.Do(func() (err error) {
		m.socket, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(a.host.Addr(), 0)))
		return err
	})
	if err != nil {
		return nil, err
	}
	s := webrtc.SettingEngine{}
	s.SetNetworkTypes([]webrtc.NetworkType{webrtc.NetworkTypeUDP4})
	s.LoggerFactory = &logging.DefaultLoggerFactory{DefaultLogLevel: logging.LogLevelDisabled, Writer: io.Discard}
	s.SetICEUDPMux(webrtc.NewICEUDPMux(s.LoggerFactory.NewLogger("ice"), m.socket))
	// Without interceptors a client sends no reports and requests no retransmissions.
	api := webrtc.NewAPI(webrtc.WithMediaEngine(a.engine), webrtc.WithSettingEngine(s), webrtc.WithInterceptorRegistry(&interceptor.Registry{}))
	if m.pc, err = api.NewPeerConnection(webrtc.Configuration{}); err != nil {
		_ = m.socket.Close()
		return nil, err
	}
	a.all = append(a.all, m)
	return m.pc, nil
}

// Len returns the number of clients.
func (a *Audience) Len() int { return len(a.all) }

// Heard returns what the clients have received so far.
func (a *Audience) Heard() Heard {
	return Heard{Bytes: a.bytes.Load(), Packets: a.packets.Load(), Lost: a.lost.Load()}
}

// Close disconnects all clients.
func (a *Audience) Close() {
	for _, m := range a.all {
		_ = m.pc.GracefulClose()
		_ = m.socket.Close()
	}
	a.reading.Wait()
	a.client.CloseIdleConnections()
}

// Join adds a client that receives a channel, and returns when it is connected.
func (a *Audience) Join(ctx context.Context, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	pc, err := a.add()
	if err != nil {
		return fmt.Errorf("viewer of %s: %w", channel, err)
	}
	connected := make(chan struct{})
	connect := sync.OnceFunc(func() { close(connected) })
	pc.OnConnectionStateChange(func(s webrtc.PeerConnectionState) {
		if s == webrtc.PeerConnectionStateConnected {
			connect()
		}
	})
	pc.OnTrack(func(t *webrtc.TrackRemote, _ *webrtc.RTPReceiver) { a.reading.Go(func() { a.read(t) }) })
	if err := a.negotiate(ctx, pc, channel); err != nil {
		return fmt.Errorf("viewer of %s: %w", channel, err)
	}
	select {
	case <-connected:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("viewer of %s is not connected: %w", channel, context.Cause(ctx))
	}
}

// negotiate sets up a session by WHEP (RFC 9725).
func (a *Audience) negotiate(ctx context.Context, pc *webrtc.PeerConnection, channel string) error {
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		if _, err := pc.AddTransceiverFromKind(kind, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}); err != nil {
			return err
		}
	}
	offer, err := pc.CreateOffer(nil)
	if err != nil {
		return err
	}
	gathered := webrtc.GatheringCompletePromise(pc)
	if err := pc.SetLocalDescription(offer); err != nil {
		return err
	}
	select {
	case <-gathered:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	answer, err := a.offer(ctx, channel, pc.LocalDescription().SDP)
	if err != nil {
		return err
	}
	return pc.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: answer})
}

func (a *Audience) offer(ctx context.Context, channel, sdp string) (answer string, err error) {
	for { // The gateway limits the requests of one address per second.
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/whep/"+channel, bytes.NewBufferString(sdp))
		if err != nil {
			return "", err
		}
		request.Header.Set("Content-Type", "application/sdp")
		res, err := a.client.Do(request)
		if err != nil {
			return "", err
		}
		body, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		err = errors.Join(err, res.Body.Close())
		switch {
		case err != nil:
			return "", err
		case res.StatusCode == http.StatusCreated:
			return string(body), nil
		case res.StatusCode != http.StatusTooManyRequests:
			return "", fmt.Errorf("the gateway answers %s: %s", res.Status, body)
		}
		if err := tasks.Sleep(ctx, 200*time.Millisecond); err != nil {
			return "", err
		}
	}
}

// read counts the packets of a track until its connection is closed.
func (a *Audience) read(t *webrtc.TrackRemote) {
	var last uint16
	for first := true; ; first = false {
		p, _, err := t.ReadRTP()
		if err != nil {
			return
		}
		if ahead := p.SequenceNumber - last; !first && ahead > 1 && ahead < 1<<15 {
			a.lost.Add(uint64(ahead - 1))
		}
		last = p.SequenceNumber
		a.packets.Add(1)
		a.bytes.Add(uint64(p.MarshalSize()))
	}
}
