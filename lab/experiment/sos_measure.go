package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

// carried is a transfer that agents carried.
type carried struct {
	testbed.Goodput
	// SenderCPU and ReceiverCPU are the CPU usages of all agents at the client's and at the server's
	// side during the transfer, in percent of one core.
	SenderCPU, ReceiverCPU float64
}

// carriedTransfer measures a transfer with the given parameters of SOS. It returns an error if agents have
// not carried it.
func (s *site) carriedTransfer(ctx context.Context, t testbed.Transfer, tuning sos.Tuning) (c carried, err error) {
	before, err := s.Sessions(ctx)
	if err != nil {
		return c, err
	}
	entry, err := s.Whitelist(ctx, s.lab.Host("server").Addr(), uint16(t.Port), tuning)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.Unlist(context.WithoutCancel(ctx), entry)) }()
	senders, err := s.startCPUMeters("x")
	if err != nil {
		return c, err
	}
	receivers, err := s.startCPUMeters("y")
	if err != nil {
		return c, err
	}
	if c.Goodput, err = t.Run(ctx); err != nil {
		return c, err
	}
	if c.SenderCPU, err = senders.percent(); err != nil {
		return c, err
	}
	if c.ReceiverCPU, err = receivers.percent(); err != nil {
		return c, err
	}
	after, err := s.Sessions(ctx)
	if err != nil {
		return c, err
	}
	// iperf3 has a control connection beside its streams.
	if want := len(before) + max(t.Streams, 1) + 1; len(after) < want {
		return c, fmt.Errorf("%w: %d sessions, want %d", testbed.ErrNotCarried, len(after), want)
	}
	return c, nil
}

// transfer returns a transfer by iperf3 from client to server, whose duration depends on the scale.
func (s *site) transfer(scale Scale, streams int) testbed.Transfer {
	return testbed.Transfer{
		Client: s.lab.Host("client"), Server: s.lab.Host("server"),
		To: s.lab.Host("server").Addr().String(), Port: iperfPort, Streams: streams,
		Time: pick[time.Duration](scale, 4, 8, 20) * time.Second,
		Omit: pick[time.Duration](scale, 3, 4, 8) * time.Second,
	}
}

// cpuMeter measures the CPU usage of a process.
type cpuMeter struct {
	pid   int
	used  time.Duration
	began time.Time
}

func startCPUMeter(pid int) (cpuMeter, error) {
	used, err := testbed.CPUTime(pid)
	return cpuMeter{pid: pid, used: used, began: time.Now()}, err
}

// percent returns the usage since the start, in percent of one core.
func (m cpuMeter) percent() (float64, error) {
	used, err := testbed.CPUTime(m.pid)
	return 100 * (used - m.used).Seconds() / time.Since(m.began).Seconds(), err
}

// cpuMeters measures the CPU usage of several processes together.
type cpuMeters []cpuMeter

// startCPUMeters measures the agents at one side: x is the client's, y the server's.
func (s *site) startCPUMeters(side string) (all cpuMeters, err error) {
	for i := 1; s.Agent(pairName(side, i)) != nil; i++ {
		m, err := startCPUMeter(s.Agent(pairName(side, i)).PID())
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// percent returns the sum of the usages since the start, in percent of one core.
func (all cpuMeters) percent() (sum float64, err error) {
	for _, m := range all {
		p, err := m.percent()
		if err != nil {
			return 0, err
		}
		sum += p
	}
	return sum, nil
}
