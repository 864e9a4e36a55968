package hostile

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

// Kinds are all of them.
func Kinds() []Kind {
	return []Kind{
		{"ports", "claims 65,000 ports", as(claimsPorts)},
		{"port-status", "has 1,000 ports that come and go without end", as(flapsPorts)},
		{"statistics", "counts for 60,000 ports that it does not have", as(countsAbsentPorts)},
		{"replies", "answers each request for counters by parts without end and without content", as(repliesWithoutEnd)},
		{"hosts", "tells of a new host with each packet", as(sends(newHosts))},
		{"moves", "claims the addresses of hosts elsewhere", as(sends(claims))},
		{"packets", "sends up packets between two hosts as fast as it can", as(sends(dialogue))},
		{"garbage", "sends bytes without meaning", as(sends(garbage))},
		{"barriers", "never confirms a change", as(withholdsBarriers)},
		{"deaf", "has a session and reads no more", as(readsNoMore)},
		{"churn", "comes and goes without pause", as(churns)},
		{"silence", "opens 4,096 connections and says nothing", silence},
	}
}

func claimsPorts(context.Context) conduct {
	return conduct{options: fake.Options{Ports: 65000}, pause: again}
}

func flapsPorts(context.Context) conduct {
	const ports = 1000
	return conduct{options: fake.Options{Ports: ports}, pause: again, worst: func(ctx context.Context, s *fake.Switch, _ Target) {
		for up := false; ctx.Err() == nil; up = !up {
			for port := uint32(1); port <= ports; port++ {
				if s.SetPort(port, up) != nil {
					return
				}
			}
		}
	}}
}

func countsAbsentPorts(context.Context) conduct {
	absent := make([]openflow.PortStats, 60_000)
	for i := range absent {
		absent[i].Port = uint32(1000 + i)
	}
	return conduct{options: fake.Options{Ports: 2, PortStats: func() []openflow.PortStats { return absent }}, pause: again}
}

func repliesWithoutEnd(context.Context) conduct {
	var asked atomic.Uint32 // the transaction of the last request for counters
	return conduct{
		pause: again,
		options: fake.Options{Ports: 2, Instead: func(xid uint32, m openflow.Message) ([]byte, bool) {
			r, is := m.(*openflow.MultipartRequest)
			if !is {
				return nil, false
			}
			_, counters := r.Body.(*openflow.PortStatsRequest)
			if counters {
				asked.Store(xid)
			}
			return nil, counters
		}},
		worst: func(ctx context.Context, s *fake.Switch, _ Target) {
			for ctx.Err() == nil {
				if _, err := s.Write(emptyParts(asked.Load())); err != nil {
					return
				}
			}
		},
	}
}

// emptyParts are parts of an answer that hold nothing and say that more follows.
func emptyParts(xid uint32) (b []byte) {
	part := openflow.MultipartReply{More: true, Body: &openflow.PortStatsReply{}}
	for range 1024 {
		b, _ = part.AppendTo(b, xid) // it fits
	}
	return b
}

func withholdsBarriers(context.Context) conduct {
	return conduct{pause: again, options: fake.Options{Ports: 2, Instead: func(_ uint32, m openflow.Message) ([]byte, bool) {
		return nil, m.MsgType() == openflow.TypeBarrierRequest
	}}}
}

// deafFor is how long a switch reads nothing before it comes again.
const deafFor = 15 * time.Second

func readsNoMore(context.Context) conduct {
	deaf, over := new(atomic.Bool), make(chan struct{})
	return conduct{
		pause: again,
		options: fake.Options{Ports: 2, Instead: func(uint32, openflow.Message) ([]byte, bool) {
			if deaf.Load() {
				<-over
			}
			return nil, false
		}},
		worst: func(ctx context.Context, _ *fake.Switch, _ Target) {
			defer close(over)
			deaf.Store(true)
			_ = tasks.Sleep(ctx, deafFor)
		},
	}
}

func churns(context.Context) conduct {
	return conduct{options: fake.Options{Ports: 2}, worst: func(context.Context, *fake.Switch, Target) {}}
}
