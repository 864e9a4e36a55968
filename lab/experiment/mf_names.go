package experiment

import (
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/redistest"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrs"
	"github.com/sluice-net/sluice/services/mobilityfirst/gnrswire"
	"github.com/sluice-net/sluice/services/mobilityfirst/record"
)

const (
	// namesLookups and namesUpdates are the operations a second that a name service must reach on
	// one machine, which also runs the clients. namesBytes bounds its memory for a name, in bytes.
	namesLookups, namesUpdates, namesBytes = 60_000, 20_000, 250
	namesPort                              = 5091
	// namesNew is the number of new names that the service lets each address make in a second; the
	// default is 20.
	namesNew = 1000
	// signedAtOnce is the number of records that are signed before any of them is written.
	signedAtOnce = 50_000
)

func mfNames() Experiment {
	return Experiment{
		Name:     "mf-names",
		Title:    "A name service: look-ups, durable writes, memory, and kills",
		Question: "How many names can one machine keep, how many look-ups and moves a second does it serve, and does it keep after a kill what it has acknowledged?",
		Source:   "MobilityFirst's name service; DMap (Vu et al., ICDCS 2012)",
		Run:      runMFNames,
	}
}

type namesScale struct {
	names, lookups, updates, kills int
}

// local is this machine, without a namespace.
type local struct{}

// Command implements testbed.Place.
func (local) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

// namesRig is a name service with its clients.
type namesRig struct {
	env     *Env
	dir     string
	at      netip.AddrPort
	daemon  *testbed.Daemon
	clients []*nameClient
	names   []frame.GUID
	redis   *redistest.Cluster // cluster that has the names; nil means the service's folder
}

func runMFNames(ctx context.Context, env *Env) (*Result, error) {
	s := pick(env.Scale, namesScale{20_000, 200_000, 20_000, 5}, namesScale{1_000_000, 2_000_000, 200_000, 50}, namesScale{1_000_000, 10_000_000, 1_000_000, 200})
	raw, err := env.CSV("names", "what", "count", "seconds", "asked_again")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(11)
	rig := newNamesRig(env, namesPort, s.names)
	if err := rig.start(ctx); err != nil {
		return nil, err
	}
	defer rig.stop()
	r := &Result{Network: fmt.Sprintf("one machine with %d processors: the name service with its default settings but for new names, of which an address may make %d a second, and %d addresses that ask it over the loopback interface, %d questions at once each", runtime.NumCPU(), namesNew, nameClients, nameWindow)}
	if err := rig.measure(ctx, s, raw, r); err != nil {
		return nil, err
	}
	if err := rig.stale(ctx, pick(env.Scale, 200, 1000, 10_000), r); err != nil {
		return nil, err
	}
	env.namesModel(r)
	env.Step("%d kills while names are written", s.kills)
	if err := rig.kills(ctx, r, "what was acknowledged is there after a kill -9 in mid-update", s.kills, func() { rig.daemon.Kill() }, rig.restart); err != nil {
		return nil, err
	}
	if err := peerRedis(ctx, env, raw, r); err != nil {
		return nil, fmt.Errorf("names in a Redis Cluster: %w", err)
	}
	r.Note("Each name is of a key of its own; the service checks each record's signature. A write is acknowledged when the disk has it. Questions ask for the addresses, as the original release does. Bytes a name are the most resident memory of the process, less what it had without names, and count what is cached of the disk.")
	return r, nil
}

// newNamesRig returns a rig whose service listens at a port and has a number of names.
func newNamesRig(env *Env, port uint16, names int) *namesRig {
	return &namesRig{env: env, dir: filepath.Join(env.Dir, "names"), at: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port), names: make([]frame.GUID, names)}
}

// start starts the service and the clients, and waits until it answers.
func (rig *namesRig) start(ctx context.Context) error {
	for n := len(rig.clients); n < nameClients; n++ {
		c, err := newNameClient(n, rig.at)
		if err != nil {
			return err
		}
		rig.clients = append(rig.clients, c)
	}
	log := filepath.Join(rig.env.Dir, fmt.Sprintf("gnrs-%d.log", rig.at.Port()))
	args := []string{"mf", "gnrs", "--listen", rig.at.String(), "--dir", rig.dir, "--new-names", strconv.Itoa(namesNew)}
	if rig.redis != nil {
		args = append(args, "--redis", strings.Join(rig.redis.Addrs(), ","))
	}
	d, err := testbed.StartDaemon(ctx, local{}, log, rig.env.Binary, args...)
	if err != nil {
		return err
	}
	rig.daemon = d
	c, err := gnrs.Dial(rig.at)
	if err != nil {
		return err
	}
	defer c.Close()
	err = testbed.Poll(ctx, "the name service", func() error {
		_, err := c.Lookup(ctx, frame.GUID{})
		if refused := (*gnrs.RefusedError)(nil); errors.As(err, &refused) && refused.Code == gnrs.NotFound {
			return nil
		}
		return err
	})
	if err != nil {
		rig.daemon.Stop()
		return fmt.Errorf("%w: %s", err, testbed.Tail(log, 5))
	}
	return nil
}

// stop ends the service and the clients.
func (rig *namesRig) stop() {
	for _, c := range rig.clients {
		c.conn.Close()
	}
	if rig.daemon != nil {
		rig.daemon.Stop()
	}
}

// cpu returns the CPU time of the service's processes.
func (rig *namesRig) cpu() (sum time.Duration, err error) {
	pids := []int{rig.daemon.PID()}
	if rig.redis != nil {
		for _, n := range rig.redis.Nodes {
			pids = append(pids, n.PID())
		}
	}
	for _, pid := range pids {
		d, err := testbed.CPUTime(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// measure fills the service with names, looks them up, and moves them.
func (rig *namesRig) measure(ctx context.Context, s namesScale, raw *CSV, r *Result) error {
	empty, err := testbed.PeakMemory(rig.daemon.PID())
	if err != nil {
		return err
	}
	t := Table{Title: "What one name service does", Columns: []string{"what", "count", "a second", "asked again", "CPU us each"}}
	rates, err := rig.fill(ctx, s, raw, &t, "")
	if err != nil {
		return err
	}
	full, err := testbed.PeakMemory(rig.daemon.PID())
	if err != nil {
		return err
	}
	r.Tables = append(r.Tables, t)
	each := float64(full-empty) / float64(s.names)
	r.Claim(rates["look-ups"] >= namesLookups, fmt.Sprintf("at least %d look-ups a second", namesLookups), "%.0f, of %d names", rates["look-ups"], s.names)
	r.Claim(min(rates["updates"], rates["new names"]) >= namesUpdates, fmt.Sprintf("at least %d durable writes a second", namesUpdates), "%.0f new names, %.0f updates", rates["new names"], rates["updates"])
	if s.names >= 1_000_000 {
		r.Claim(each <= namesBytes, fmt.Sprintf("at most %d resident bytes a name", namesBytes), "%.0f (%.1f MiB, %.1f without names)", each, float64(full)/(1<<20), float64(empty)/(1<<20))
	}
	return nil
}

// fill is the part of measure that adds rows to the table. It returns the operations a second.
func (rig *namesRig) fill(ctx context.Context, s namesScale, raw *CSV, t *Table, where string) (rates map[string]float64, err error) {
	steps := []struct {
		what string
		run  func() (count int, took time.Duration, again int, err error)
	}{
		{"new names", func() (int, time.Duration, int, error) { return rig.write(ctx, s.names) }},
		{"look-ups", func() (int, time.Duration, int, error) { return rig.lookUp(ctx, s.lookups) }},
		{"updates", func() (int, time.Duration, int, error) { return rig.write(ctx, s.updates) }},
	}
	rates = map[string]float64{}
	for _, step := range steps {
		rig.env.Step("%s%s", step.what, where)
		before, err := rig.cpu()
		if err != nil {
			return nil, err
		}
		count, took, again, err := step.run()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		after, err := rig.cpu()
		if err != nil {
			return nil, err
		}
		rates[step.what] = float64(count) / took.Seconds()
		rig.env.Logf("%.0f a second, %d of %d asked again", rates[step.what], again, count)
		t.Add(step.what+where, count, fmt.Sprintf("%.0f", rates[step.what]), again, fmt.Sprintf("%.1f", float64((after-before).Microseconds())/float64(count)))
		if err := raw.Row(step.what+where, count, took.Seconds(), again); err != nil {
			return nil, err
		}
	}
	return rates, nil
}

// key returns the key of a name.
func (rig *namesRig) key(i int) ed25519.PrivateKey {
	var seed [ed25519.SeedSize]byte
	binary.BigEndian.PutUint64(seed[:], uint64(i)+1)
	return ed25519.NewKeyFromSeed(seed[:])
}

// place returns an address that a name may have.
func place(n int) gnrswire.Address {
	return gnrswire.AddrPortOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 5000))
}

// write writes the places of count names. took is the time of writing alone, because the records
// are signed before.
func (rig *namesRig) write(ctx context.Context, count int) (_ int, took time.Duration, again int, err error) {
	for _, c := range rig.clients {
		if err := c.prove(); err != nil {
			return 0, 0, 0, err
		}
	}
	for first := 0; first < count; first += signedAtOnce {
		messages, err := rig.sign(first, min(signedAtOnce, count-first))
		if err != nil {
			return 0, 0, 0, err
		}
		d, n, err := askAll(ctx, rig.clients, questions{count: len(messages), message: func(i int, cookie []byte) ([]byte, error) {
			m := *messages[i]
			m.Options = append(slices.Clip(m.Options), gnrs.CookieOption(cookie))
			return m.AppendTo(nil)
		}})
		if err != nil {
			return 0, 0, 0, err
		}
		took, again = took+d, again+n
	}
	return count, took, again, nil
}

// sign returns messages that say where names are now.
func (rig *namesRig) sign(first, count int) ([]*gnrswire.Message, error) {
	out, errs := make([]*gnrswire.Message, count), make([]error, runtime.NumCPU())
	now := time.Now()
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for i := w; i < count && errs[w] == nil; i += len(errs) {
				var r *record.Record
				if r, errs[w] = record.Sign(rig.key(first+i), uint64(now.UnixNano()), now.Add(record.MaxValidity-time.Minute), place(i)); errs[w] != nil {
					return
				}
				rig.names[first+i] = r.GUID()
				out[i] = &gnrswire.Message{Kind: gnrswire.Update}
				r.Into(out[i])
			}
		})
	}
	all.Wait()
	return out, errors.Join(errs...)
}

// lookUp looks up names in random order.
func (rig *namesRig) lookUp(ctx context.Context, count int) (_ int, took time.Duration, again int, err error) {
	took, again, err = askAll(ctx, rig.clients, questions{
		count: count,
		message: func(int, []byte) ([]byte, error) {
			return (&gnrswire.Message{Kind: gnrswire.Lookup, GUID: rig.names[rand.IntN(len(rig.names))]}).AppendTo(nil)
		},
		answered: func(_ int, m *gnrswire.Message) error {
			if len(m.Addresses) != 1 {
				return fmt.Errorf("%d addresses of a name that has one", len(m.Addresses))
			}
			return nil
		},
	})
	return count, took, again, err
}
