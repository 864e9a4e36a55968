package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/handover"
)

// These describe the download to the device, and how its moves are watched.
const (
	deviceRate = 100e6 // bit/s of the download
	devicePort = 8000
	// deviceWatch is how long each move is watched.
	deviceWatch = time.Second
)

// deviceSamples holds the effects of moves of a device that runs the daemon for mobile devices.
type deviceSamples struct {
	policy string
	moves  int
	udp    testbed.StreamReport
	tcp    testbed.PullReport
	resets int
	wrong  bool
	gaps   []float64 // ms, one for each move
	leases []float64 // ms from the decision to the network's answer
	copies uint64    // copies that the device's datapath dropped
}

// moveDevices measures the daemon of a mobile device with an interface at the first and one at the
// third edge, under both policies.
func (rig *policyRig) moveDevices(ctx context.Context, moves int) (all []*deviceSamples, err error) {
	raw, err := rig.env.CSV("device", "policy", "move", "gap_seconds", "lost", "least_bits_per_second", "median_bits_per_second")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	for _, policy := range []string{"saving", "seamless"} {
		rig.env.Step("a device with its daemon, %s, %d moves", policy, moves)
		if err := rig.domain.PutClass(ctx, "device", handover.ClassSpec{Policy: policy, Overlap: policyOverlap.String()}); err != nil {
			return nil, err
		}
		m, err := testbed.StartMobile(ctx, testbed.MobileOptions{
			Host: rig.lab.Host(theDevice), Binary: rig.env.Binary, LogDir: rig.env.Dir, Home: rig.domain, Class: "device",
			Device: theDevice, Interfaces: []string{"eth0", "eth2"},
		})
		if err != nil {
			return nil, err
		}
		s, err := rig.moveDevice(ctx, m, policy, moves, raw)
		if err = errors.Join(err, m.Close()); err != nil {
			return nil, fmt.Errorf("a device, %s: %w", policy, err)
		}
		rig.env.Logf("silence: median %.1f ms; %d of %d packets lost", median(s.gaps), s.udp.Lost, s.udp.Sent)
		all = append(all, s)
	}
	return all, nil
}

// moveDevice moves the device back and forth during a download and a stream.
func (rig *policyRig) moveDevice(ctx context.Context, m *testbed.Mobile, policy string, moves int, raw *CSV) (*deviceSamples, error) {
	server, device := rig.lab.Host(rig.network.Server), rig.lab.Host(theDevice)
	stream, err := testbed.StartStream(ctx, testbed.StreamOptions{
		Sender: server, Receiver: device, To: netip.AddrPortFrom(m.Addr(), stationPort), Rate: policyRate,
	})
	if err != nil {
		return nil, err
	}
	pull, err := testbed.StartPull(ctx, testbed.PullOptions{
		Server: server, Client: device, Listen: netip.AddrPortFrom(rig.network.ServerAddr, devicePort), Rate: deviceRate, Congestion: "cubic",
	})
	if err != nil {
		stream.Stop()
		return nil, err
	}
	out := &deviceSamples{policy: policy}
	times, err := rig.toAndFro(ctx, m, moves, out)
	if err == nil {
		out.copies, err = copies(ctx, m)
	}
	packets, bytes := stream.Stop(), pull.Stop()
	if err = errors.Join(err, bytes.Err); err != nil {
		return nil, err
	}
	last := len(times) - 1
	out.moves, out.resets, out.wrong = moves, bytes.Resets, bytes.Wrong
	out.udp, out.tcp = packets.Between(times[0], times[last]), bytes.Between(times[0], times[last])
	for i, at := range times[:last] {
		udp, tcp := packets.Between(at, times[i+1]), bytes.Between(at, times[i+1])
		out.gaps = append(out.gaps, inMS(udp.Gap))
		if err := raw.Row(policy, i+1, udp.Gap, udp.Lost, tcp.Least, tcp.Median); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// toAndFro makes the moves. It returns the times at which the moves began, and the time at which
// the last one was over.
func (rig *policyRig) toAndFro(ctx context.Context, m *testbed.Mobile, moves int, out *deviceSamples) ([]time.Time, error) {
	if err := tasks.Sleep(ctx, 2*deviceWatch); err != nil { // while TCP finds its rate
		return nil, err
	}
	var times []time.Time
	for i := range moves {
		times = append(times, time.Now())
		moved, err := m.Move(ctx, []string{"eth2", "eth0"}[i%2])
		if err != nil {
			return nil, fmt.Errorf("move %d: %w", i+1, err)
		}
		out.leases = append(out.leases, inMS(time.Duration(moved.Lease)))
		if err := tasks.Sleep(ctx, deviceWatch-time.Since(times[i])); err != nil {
			return nil, err
		}
	}
	return append(times, time.Now()), nil
}

// copies returns the number of frames that the device has dropped as duplicates.
func copies(ctx context.Context, m *testbed.Mobile) (n uint64, err error) {
	s, err := m.Status(ctx)
	for _, i := range s.Interfaces {
		n += i.Doubled
	}
	return n, err
}

func deviceResult(r *Result, all []*deviceSamples) {
	table := Table{
		Title: fmt.Sprintf("A device with its daemon and two radios, under a download of %.0f Mbit/s and %d packets a second", deviceRate/1e6, policyRate),
		Columns: []string{
			"policy", "moves", "packets", "lost", "doubled", "silence: median ms", "p95 ms", "TCP median Mbit/s", "worst 100 ms", "dips", "resets",
			"joining: median ms", "copies dropped by the device",
		},
	}
	for _, s := range all {
		table.Add(s.policy, s.moves, s.udp.Sent, s.udp.Lost, s.udp.Doubled, ms1(median(s.gaps)), ms1(quantile(s.gaps, 0.95)),
			ms1(s.tcp.Median/1e6), ms1(s.tcp.Least/1e6), s.tcp.Dips, s.resets, ms1(median(s.leases)), s.copies)
		if s.policy == "seamless" {
			r.Claim(s.udp.Lost == 0 && s.udp.Doubled == 0, fmt.Sprintf("a device, seamless, %d moves: no packet lost, none doubled", s.moves), "%d lost, %d doubled of %d", s.udp.Lost, s.udp.Doubled, s.udp.Sent)
			r.Claim(s.tcp.Dips == 0, "a device, seamless: no 100 ms of TCP below half the median", "%d of %d; worst %.1f of %.1f Mbit/s", s.tcp.Dips, s.tcp.Intervals, s.tcp.Least/1e6, s.tcp.Median/1e6)
		}
		r.Claim(s.resets == 0 && !s.wrong, fmt.Sprintf("a device, %s: one TCP connection throughout, every byte in its place", s.policy), "%d resets, bytes misplaced: %v", s.resets, s.wrong)
	}
	r.Tables = append(r.Tables, table)
	r.Note("The device's daemon has its default settings: nothing is said about probes or choices.")
}
