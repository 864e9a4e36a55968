package hostile

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

// Kinds returns all kinds of hostile switches.
func Kinds() []Kind {
	return []Kind{
		{"ports", "claims 65,000 ports", reconnecting(claimsPorts)},
		{"port-status", "has 1,000 ports that come and go without end", reconnecting(flapsPorts)},
		{"statistics", "reports counters of 60,000 ports that it does not have", reconnecting(countsAbsentPorts)},
		{"replies", "answers each request for counters with empty parts without end", reconnecting(repliesWithoutEnd)},
		{"hosts", "reports a new host with each packet-in", reconnecting(flooding(newHosts))},
		{"moves", "claims the addresses of hosts at other switches", reconnecting(flooding(claims))},
		{"packets", "sends packet-ins from two hosts as fast as it can", reconnecting(flooding(dialogue))},
		{"garbage", "sends messages with random content", reconnecting(flooding(garbage))},
		{"barriers", "never answers a barrier request", reconnecting(withholdsBarriers)},
		{"deaf", "completes the handshake and then stops reading", reconnecting(readsNoMore)},
		{"churn", "connects and disconnects without pause", reconnecting(churns)},
		{"silence", "opens 4,096 connections and says nothing", silence},
	}
}

func claimsPorts(context.Context) behaviour {
	return behaviour{options: fake.Options{Ports: 65000}, pause: reconnectDelay}
}

func flapsPorts(context.Context) behaviour {
	const ports = 1000
	return behaviour{options: fake.Options{Ports: ports}, pause: reconnectDelay, attack: func(ctx context.Context, s *fake.Switch, _ Target) {
		for up := false; ctx.Err() == nil; up = !up {
			for port := uint32(1); port <= ports; port++ {
				if s.SetPort(port, up) != nil {
					return
				}
			}
		}
	}}
}

func countsAbsentPorts(context.Context) behaviour {
	absent := make([]openflow.PortStats, 60_000)
	for i := range absent {
		absent[i].Port = uint32(1000 + i)
	}
	return behaviour{options: fake.Options{Ports: 2, PortStats: func() []openflow.PortStats { return absent }}, pause: reconnectDelay}
}

func repliesWithoutEnd(context.Context) behaviour {
	var lastRequest atomic.Uint32 // the transaction ID of the last request for counters
	return behaviour{
		pause: reconnectDelay,
		options: fake.Options{Ports: 2, Instead: func(xid uint32, m openflow.Message) ([]byte, bool) {
			r, ok := m.(*openflow.MultipartRequest)
			if !ok {
				return nil, false
			}
			_, counters := r.Body.(*openflow.PortStatsRequest)
			if counters {
				lastRequest.Store(xid)
			}
			return nil, counters
		}},
		attack: func(ctx context.Context, s *fake.Switch, _ Target) {
			for ctx.Err() == nil {
				if _, err := s.Write(emptyParts(lastRequest.Load())); err != nil {
					return
				}
			}
		},
	}
}

// emptyParts returns parts of a reply that are empty and announce further parts.
func emptyParts(xid uint32) (b []byte) {
	part := openflow.MultipartReply{More: true, Body: &openflow.PortStatsReply{}}
	for range 1024 {
		b, _ = part.AppendTo(b, xid) // It fits.
	}
	return b
}

func withholdsBarriers(context.Context) behaviour {
	return behaviour{pause: reconnectDelay, options: fake.Options{Ports: 2, Instead: func(_ uint32, m openflow.Message) ([]byte, bool) {
		return nil, m.MsgType() == openflow.TypeBarrierRequest
	}}}
}

// deafFor is how long a switch reads nothing before it connects again.
const deafFor = 15 * time.Second

func readsNoMore(context.Context) behaviour {
	deaf, over := new(atomic.Bool), make(chan struct{})
	return behaviour{
		pause: reconnectDelay,
		options: fake.Options{Ports: 2, Instead: func(uint32, openflow.Message) ([]byte, bool) {
			if deaf.Load() {
				<-over
			}
			return nil, false
		}},
		attack: func(ctx context.Context, _ *fake.Switch, _ Target) {
			defer close(over)
			deaf.Store(true)
			_ = tasks.Sleep(ctx, deafFor)
		},
	}
}

func churns(context.Context) behaviour {
	return behaviour{options: fake.Options{Ports: 2}, attack: func(context.Context, *fake.Switch, Target) {}}
}
