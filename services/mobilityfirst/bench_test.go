package mobilityfirst

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-net/sluice/kit/servicetest"
	"github.com/sluice-net/sluice/network"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
)

// sentTo is signalled when a frame is sent.
type sentTo chan struct{}

func (s sentTo) Send(network.PortRef, []byte) error {
	select {
	case s <- struct{}{}:
	default:
	}
	return nil
}

// BenchmarkRequest measures a request for an existing path, from the frame until it is forwarded.
func BenchmarkRequest(b *testing.B) {
	net := servicetest.NewNetwork(ring())
	s := New(Options{Network: net, Rules: servicetest.NewLedger(), Metric: network.MetricHops})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.paths.flows.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	from, to, at, there := numbered(1), numbered(2), host(1, 1), host(2, 2)
	now, sent := time.Now(), make(chan struct{}, 1)
	s.names.learn(endpoint{from.name, at}, 1, now)
	s.names.learn(endpoint{to.name, there}, 1, now)
	q := frame.PathRequest{ID: 1, Destination: to.name, Hello: frame.Hello{MAC: at.MAC, Number: 1}}
	copy(q.Hello.Key[:], from.key[32:])
	asked, send := q.AppendTo(nil), sentTo(sent)
	ask := func(now time.Time) {
		f, err := frame.Parse(asked)
		if err != nil {
			b.Fatal(err)
		}
		r := f.(*frame.PathRequest)
		if s.limits.frames.Allow(at.At, now) {
			s.process(message{place: at, hello: r.Hello, request: r, received: now, send: send})
		}
	}
	ask(now)
	for s.paths.routes() == nil {
		<-net.Sent
	}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Second / framesPerPort)
		ask(now)
	}
	<-sent
}
