package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

var setupLine = line{Rate: 300e6, RTT: 50 * time.Millisecond, MTU: 1500}

const (
	webPort = 80
	// setupBudget is the longest time by which a set-up may exceed a direct handshake and one round
	// trip of the WAN.
	setupBudget = 5 * time.Millisecond
)

func sosSetup() Experiment {
	return Experiment{
		Name:     "sos-setup",
		Title:    "The client's connect time, direct and by SOS",
		Question: "How much longer does a client wait when agents carry its connection?",
		Run:      runSetup,
	}
}

func runSetup(ctx context.Context, env *Env) (*Result, error) {
	count := pick(env.Scale, 10, 50, 200)
	l := setupLine
	raw, err := env.CSV("connect", "way", "number", "connect_seconds", "total_seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(2)
	r := &Result{Network: "two switches, " + l.String()}
	var direct, carried []float64
	var steps []sos.Record
	err = env.withSite(ctx, twoSites("setup", l, 1), func(ctx context.Context, s *site) error {
		stop, err := serveSmallFile(ctx, env, s)
		if err != nil {
			return err
		}
		defer stop()
		env.Step("%d direct connections", count)
		if direct, err = connects(ctx, s, raw, "direct", count); err != nil {
			return err
		}
		if _, err := s.Whitelist(ctx, s.lab.Host("server").Addr(), webPort, sos.Tuning{}); err != nil {
			return err
		}
		env.Step("%d connections by SOS", count)
		if carried, err = connects(ctx, s, raw, "sos", count); err != nil {
			return err
		}
		steps, err = s.Sessions(ctx)
		if err == nil && len(steps) < count {
			err = fmt.Errorf("%w: %d sessions, want %d", testbed.ErrNotCarried, len(steps), count)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	setupResult(r, l, direct, carried, steps)
	return r, nil
}

// serveSmallFile serves a file of one byte on the server.
func serveSmallFile(ctx context.Context, env *Env, s *site) (stop func(), err error) {
	root, err := os.MkdirTemp("", "sluice-web-")
	if err != nil {
		return nil, err
	}
	logs := filepath.Join(env.Dir, "server")
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(root, "byte"), []byte("1"), 0o644); err != nil {
		return nil, err
	}
	web, err := testbed.StartWebServer(ctx, s.lab.Host("server"), root, logs, webPort)
	if err != nil {
		os.RemoveAll(root)
		return nil, err
	}
	return func() { web.Stop(); os.RemoveAll(root) }, nil
}

func connects(ctx context.Context, s *site, raw *CSV, way string, count int) ([]float64, error) {
	url := fmt.Sprintf("http://%v:%d/byte", s.lab.Host("server").Addr(), webPort)
	file, err := os.CreateTemp("", "sluice-byte-")
	if err != nil {
		return nil, err
	}
	file.Close()
	defer os.Remove(file.Name())
	var times []float64
	for i := range count {
		d, err := testbed.Curl(ctx, s.lab.Host("client"), url, file.Name(), nil)
		if err != nil {
			return nil, fmt.Errorf("%s connection %d: %w", way, i+1, err)
		}
		times = append(times, 1000*d.Connect.Seconds())
		if err := raw.Row(way, i+1, d.Connect, d.Total); err != nil {
			return nil, err
		}
	}
	return times, nil
}

func setupResult(r *Result, l line, direct, carried []float64, sessions []sos.Record) {
	table := Table{Title: "Connect time in ms, as curl measures it", Columns: []string{"way", "number", meanColumn, "median", "p95", "worst"}}
	for _, row := range []struct {
		way   string
		times []float64
	}{{"direct", direct}, {"SOS", carried}} {
		table.Add(row.way, len(row.times), meanText(row.times, 1, 1), fmt.Sprintf("%.1f", median(row.times)), fmt.Sprintf("%.1f", quantile(row.times, 0.95)), fmt.Sprintf("%.1f", quantile(row.times, 1)))
	}
	r.Tables = append(r.Tables, table, setupSteps(sessions))
	bound := median(direct) + 1000*(l.RTT+setupBudget).Seconds()
	r.Claim(median(carried) <= bound, fmt.Sprintf("median with SOS at most direct + one round trip + 5 ms = %.1f ms", bound), "%.1f ms", median(carried))
}

// setupSteps returns a table of the steps that the controller has recorded, with the time of each.
func setupSteps(sessions []sos.Record) Table {
	table := Table{Title: "Where the controller says the set-up's time went, median in ms", Columns: []string{"select", "prepare", "rules", "commit", "client's rules", "total"}}
	columns := make([][]float64, 6)
	for _, s := range sessions {
		for i, d := range []time.Duration{
			time.Duration(s.Setup.Select), time.Duration(s.Setup.Prepare), time.Duration(s.Setup.Rules),
			time.Duration(s.Setup.Commit), time.Duration(s.Setup.Client), time.Duration(s.Setup.Total),
		} {
			columns[i] = append(columns[i], 1000*d.Seconds())
		}
	}
	row := make([]any, len(columns))
	for i, values := range columns {
		row[i] = fmt.Sprintf("%.2f", median(values))
	}
	table.Add(row...)
	return table
}
