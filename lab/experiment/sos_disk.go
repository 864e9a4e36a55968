package experiment

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/sos"
)

func sosDisk() Experiment {
	return Experiment{
		Name:     "sos-disk",
		Title:    "A file from disk to disk between two clouds, direct and by SOS",
		Question: "How much of the gain is left when the file is read from a disk and written to another?",
		Source: "dissertation 2017, table 5.3.1: 15.6 Mbit/s direct, 84.8 by SOS with 32 connections and chunks of 8,192 bytes; " +
			"10 GB by wget over a GRE tunnel (MTU 1410) between virtual machines at Stanford and in Maryland; the tunnel's rate and loss are not told",
		Run: runDisk,
	}
}

// diskLine imitates the path of the published measurement: the tunnel's MTU, and a round trip
// across the continent. Its rate and loss are not published; with these, a direct transfer is
// about as fast as the published one.
var diskLine = line{Rate: 100e6, RTT: 70 * time.Millisecond, Loss: 5e-4, MTU: 1410}

// diskWay is a way to transfer the file.
type diskWay struct {
	name      string
	published float64 // Mbit/s; 0 if there is none
	port      uint16
	tuning    sos.Tuning
}

var diskWays = []diskWay{
	{name: "direct", published: 15.6, port: 8081},
	{name: "SOS", port: 8082},
	{name: "SOS, 32 connections, chunks of 8,192", published: 84.8, port: 8083, tuning: sos.Tuning{Connections: 32, ChunkBytes: 8192, Queue: 1000}},
}

func runDisk(ctx context.Context, env *Env) (*Result, error) {
	size, times := pick[int64](env.Scale, 50e6, 200e6, 2e9), pick(env.Scale, 1, 3, 5)
	raw, err := env.CSV("transfers", "way", "bytes", "seconds")
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	env.Steps(len(diskWays))
	rates := map[string][]float64{}
	err = env.withSite(ctx, twoSites("disk", diskLine, 1), func(ctx context.Context, s *site) error {
		rig, err := newDiskRig(ctx, env, s, size)
		if err != nil {
			return err
		}
		defer rig.web.close()
		for _, w := range diskWays {
			env.Step("%s", w.name)
			for range times {
				took, err := rig.transfer(ctx, w)
				if err != nil {
					return fmt.Errorf("%s: %w", w.name, err)
				}
				env.Logf("%.1f s", took.Seconds())
				rates[w.name] = append(rates[w.name], float64(size)*8/took.Seconds())
				if err := raw.Row(w.name, size, took); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return diskResult(size, rates), nil
}

// diskRig is a site with a file on disk that web servers read.
type diskRig struct {
	*site
	web webRoot
	sum []byte
}

func newDiskRig(ctx context.Context, env *Env, s *site, size int64) (*diskRig, error) {
	root, err := os.MkdirTemp(env.Dir, "disk-")
	if err != nil {
		return nil, err
	}
	rig := &diskRig{site: s, web: webRoot{root: root}}
	err = rig.write(size)
	for _, w := range diskWays {
		if err == nil {
			err = rig.web.serve(ctx, env, s, "server", w.port)
		}
		if err == nil && w.name != "direct" {
			_, err = s.Whitelist(ctx, s.lab.Host("server").Addr(), w.port, w.tuning)
		}
	}
	if err != nil {
		rig.web.close()
		return nil, err
	}
	return rig, nil
}

// write writes the file to the disk itself.
func (rig *diskRig) write(size int64) error {
	f, err := os.Create(filepath.Join(rig.web.root, "file"))
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(f, sum), rand.Reader, size); err != nil {
		return err
	}
	rig.sum = sum.Sum(nil)
	return f.Sync()
}

// dropCache drops the file from the page cache, so that it is read from the disk again.
func (rig *diskRig) dropCache() error {
	f, err := os.Open(filepath.Join(rig.web.root, "file"))
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
}

// transfer fetches the file, and returns the time until all of it was on the disk.
func (rig *diskRig) transfer(ctx context.Context, w diskWay) (time.Duration, error) {
	before, err := rig.Sessions(ctx)
	if err = errors.Join(err, rig.dropCache()); err != nil {
		return 0, err
	}
	got := filepath.Join(rig.web.root, "got")
	url := fmt.Sprintf("http://%v/file", netip.AddrPortFrom(rig.lab.Host("server").Addr(), w.port))
	began := time.Now()
	if _, err := testbed.Curl(ctx, rig.lab.Host("client"), url, got, nil); err != nil {
		return 0, err
	}
	f, err := os.Open(got)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return 0, err
	}
	took, sum := time.Since(began), sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return 0, err
	}
	if !bytes.Equal(sum.Sum(nil), rig.sum) {
		return 0, errors.New("the file that has come is another one")
	}
	after, err := rig.Sessions(ctx)
	if carried := len(after) - len(before); err == nil && carried > 0 != (w.name != "direct") {
		err = fmt.Errorf("%w: %d sessions", testbed.ErrNotCarried, carried)
	}
	return took, err
}

func diskResult(size int64, rates map[string][]float64) *Result {
	r := &Result{Network: fmt.Sprintf("two switches, %v", diskLine)}
	t := Table{
		Title:   fmt.Sprintf("A file of %d MB, until it is on the disk: means with 95 %% intervals", size/1e6),
		Columns: []string{"way", "published Mbit/s", "times direct", "ours Mbit/s", "of the link", "times direct"},
	}
	direct := mean(rates["direct"])
	for _, w := range diskWays {
		ours := mean(rates[w.name])
		theirs, times := "", ""
		if w.published > 0 {
			theirs, times = fmt.Sprint(w.published), fmt.Sprintf("%.1f", w.published/diskWays[0].published)
		}
		t.Add(w.name, theirs, times, meanText(rates[w.name], 1e-6, 1), fmt.Sprintf("%.0f %%", 100*ours/diskLine.payload()), fmt.Sprintf("%.1f", ours/direct))
	}
	r.Tables = []Table{t}
	share := mean(rates["SOS"]) / diskLine.payload()
	r.Claim(share >= 0.85, "SOS, at its defaults: at least 85 % of what the link carries, from disk to disk", "%.0f %%", 100*share)
	r.Note("Scaled: %d MB of 10 GB. The kernel is told to keep nothing of the file in memory before each transfer; what has come is on the disk (fsync) before the clock stops, and its checksum is compared.", size/1e6)
	return r
}
