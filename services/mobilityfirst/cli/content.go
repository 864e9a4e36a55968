package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/internal/tasks"
	"github.com/sluice-net/sluice/internal/units"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/services/mobilityfirst/content"
	"github.com/sluice-net/sluice/services/mobilityfirst/frame"
	"github.com/sluice-net/sluice/services/mobilityfirst/hostapi"
	"github.com/sluice-net/sluice/services/mobilityfirst/nodeapi"
)

func mfPutCommand(app *commands.App) *cobra.Command {
	socket := ""
	cmd := &cobra.Command{
		Use:   "put FILE...",
		Short: "Serve files by their names",
		Long: `Prints the name of each file, which is derived from its content: the same file has the same
name wherever it is, and every reader can verify that it is that file. Serves it to all
who ask ("sluice mf get NAME"), until SIGINT or SIGTERM. Several hosts may serve the same
file. Parts of a file that change meanwhile are no longer served. Everyone who knows a name
can get the file.`,
		Example: `  sluice mf put film.mp4
  sluice mf put *.iso > names.txt`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &command.UsageError{Err: errors.New("want at least one file")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return putFiles(cmd.Context(), app, socket, args)
		},
	}
	socketFlag(cmd.Flags(), &socket)
	return cmd
}

// putFiles serves files until ctx ends or one of them can no longer be served. It reads all files
// before it serves any.
func putFiles(ctx context.Context, app *commands.App, socket string, files []string) (err error) {
	type given struct {
		m *content.Manifest
		*os.File
	}
	var all []given
	defer func() {
		for _, f := range all {
			_ = f.Close()
		}
	}()
	for _, name := range files {
		f, m, err := readContent(ctx, name)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		all = append(all, given{m, f})
	}
	ctx, cancel := context.WithCancelCause(ctx)
	work := tasks.New()
	defer work.Stop() // before the files are closed
	defer cancel(nil)
	log := slog.New(slog.NewTextHandler(app.Err, nil))
	names := map[frame.GUID]bool{}
	for _, f := range all {
		name := f.m.Name()
		if !names[name] { // otherwise another file has the same content
			host, err := hostapi.Open(ctx, socket, f.m.Key())
			if err != nil {
				return errors.Join(context.Cause(ctx), fmt.Errorf("%s: %w", f.Name(), err))
			}
			p := content.New(content.Options{Host: host, Source: content.NewFile(f.m, f), Log: log})
			work.Start(func(context.Context) {
				if err := p.Run(ctx); err != nil {
					cancel(fmt.Errorf("%s: %w", f.Name(), err))
				}
			})
		}
		names[name] = true
		app.Printf("%v  %s", name, f.Name())
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// readContent opens a file and reads it to its end, or until ctx ends.
func readContent(ctx context.Context, name string) (*os.File, *content.Manifest, error) {
	st, err := os.Stat(name) // opening a pipe would wait for its other end
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is a %s: want a file", name, kindOf(st))
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	m, err := content.ManifestOf(contextReader{ctx, f})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return f, m, nil
}

// kindOf returns the kind of something that is not a file.
func kindOf(st fs.FileInfo) string {
	if st.IsDir() {
		return "folder"
	}
	return "device, pipe or socket"
}

// contextReader reads until ctx ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (u contextReader) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(b)
}

func mfGetCommand(app *commands.App) *cobra.Command {
	var a attachment
	by := ""
	cmd := &cobra.Command{
		Use:   "get NAME [FILE]",
		Short: "Get a file by its name",
		Long: `Gets a content by the name that "sluice mf put" has printed, and writes it to a file, or to
standard output. The content is verified, whichever host it comes from. The file exists
once it is complete. With --by a cache is asked ("sluice mf cache"), which fetches what it
does not have, and keeps it for later requests: the cache with that name, or the nearest on
the network, if there is one. The cache sees who gets what. If it does not serve a piece,
a host that has the content is asked.`,
		Example: `  sluice mf get 5a0c9e1b7d3f42688c1e0f9a7b6d5c4e3f2a1b0c film.mp4
  sluice mf get 5a0c9e1b7d3f42688c1e0f9a7b6d5c4e3f2a1b0c | mpv -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return &command.UsageError{Err: errors.New("want the name of a content, and optionally a file")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := parseName(args[0])
			if err != nil {
				return err
			}
			from := []frame.GUID{name}
			switch by {
			case "":
			case nearest:
				from = []frame.GUID{content.Nearest(), name}
			default:
				if from[0], err = parseName(by); err != nil {
					return err
				}
			}
			began, bytes := time.Now(), int64(0)
			get := func(out io.Writer) error {
				return a.get(cmd.Context(), from, name, out, func(written, _ int64) { bytes = written })
			}
			if len(args) == 2 {
				err = writeFile(args[1], get)
			} else {
				err = get(app.Out)
			}
			if took := time.Since(began); err == nil {
				fmt.Fprintf(app.Err, "%s in %v, %s\n", units.FormatAmount(uint64(bytes)), took.Round(time.Millisecond), rate(bytes, took))
			}
			return err
		},
	}
	a.flags(cmd)
	cmd.Flags().StringVar(&by, "by", "", "name of a cache to ask, or \"nearest\"")
	return cmd
}

// nearest selects the nearest cache, which has to answer a ping within nearestTimeout.
const (
	nearest        = "nearest"
	nearestTimeout = 300 * time.Millisecond
)

// get gets a content from hosts of the names in by, one name after the other. It skips the first
// name if no host of that name answers a ping, unless it is the only one.
func (a *attachment) get(ctx context.Context, by []frame.GUID, name frame.GUID, out io.Writer, progress func(written, size int64)) error {
	host, err := a.open(ctx)
	if err != nil {
		return err
	}
	if len(by) > 1 {
		if _, err := host.Ping(by[0], nearestTimeout); err != nil {
			by = by[1:]
		}
	}
	p := content.New(content.Options{Host: host})
	ctx, cancel := context.WithCancel(ctx)
	work := tasks.New()
	defer work.Stop()
	defer cancel()
	work.Start(func(context.Context) { _ = p.Run(ctx) }) // GetBy returns the reason of its end
	return p.GetBy(ctx, by, name, out, progress)
}

// writeFile writes a file that only exists once it is complete. It writes directly to something
// that exists and is not a file, such as a device.
func writeFile(name string, write func(io.Writer) error) error {
	mode := fs.FileMode(0)
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case st.IsDir():
		return fmt.Errorf("%s is a folder: want a file", name)
	case !st.Mode().IsRegular():
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	default:
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return err
		}
		mode = st.Mode().Perm()
	}
	f, err := os.OpenFile(fmt.Sprintf("%s.%08x", name, rand.Uint32()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	if mode != 0 {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = write(f)
	}
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func mfCacheCommand(app *commands.App) *cobra.Command {
	var a attachment
	var metrics commands.MetricsServer
	var ctl controlServer
	dir, size, nearby := "/var/lib/sluice/contents", config.Size(content.DefaultCacheSize), false
	cmd := &cobra.Command{
		Use:   "cache",
		Short: "Cache files near those who ask for them",
		Long: `Runs a cache until it gets SIGINT or SIGTERM, with the name that belongs to --name-key. It
serves contents ("sluice mf get --by NAME") from its disk; what it does not have
it fetches, piece by piece, from a host that has the content's name. When it is full it
evicts the least recently requested pieces. It need not be trusted, because readers verify
each content. With --nearby it also serves all hosts on its network that ask for the
nearest cache ("sluice mf get --by nearest").`,
		Example: `  sluice mf cache --name-key cache.key --size 100GiB
  sluice mf cache --name-key cache.key --nearby`,
		Args: command.NoArgs,
		RunE: commands.FlagDaemon(app, func(cmd *cobra.Command, _ []string, log *slog.Logger) error {
			if a.key == "" {
				return &command.UsageError{Err: errors.New("--name-key is missing: readers have to know the cache's name; \"sluice mf name new\" creates one")}
			}
			if size < content.MinCacheSize {
				return &command.UsageError{Err: fmt.Errorf("--size %v: want at least %v", size, config.Size(content.MinCacheSize))}
			}
			return runCache(cmd.Context(), &a, content.CacheOptions{Dir: dir, Size: int64(size), Log: log}, nearby, &metrics, &ctl)
		}),
	}
	a.flags(cmd)
	metrics.Flag(cmd.Flags())
	ctl.flags(cmd.Flags())
	cmd.Flags().StringVar(&dir, "dir", dir, "folder of the contents, which only this process may use")
	cmd.Flags().TextVar(&size, "size", size, "maximum size on disk")
	cmd.Flags().BoolVar(&nearby, "nearby", false, "serve requests for the nearest cache as well")
	return cmd
}

// runCache runs a cache, and logs at its end what it has done.
func runCache(ctx context.Context, a *attachment, o content.CacheOptions, nearby bool, metrics *commands.MetricsServer, ctl *controlServer) (err error) {
	if err := errors.Join(metrics.Open(), ctl.open()); err != nil {
		return err
	}
	c, err := content.OpenCache(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	host, err := a.open(ctx)
	if err != nil {
		return err
	}
	hosts := []*hostapi.Client{host}
	if nearby {
		all, err := hostapi.Open(ctx, a.socket, content.NearestKey())
		if err != nil {
			return errors.Join(err, host.Close())
		}
		hosts = append(hosts, all)
	}
	var peers []*content.Peer
	for _, host := range hosts {
		p := content.New(content.Options{Host: host, Log: o.Log})
		p.Source = c.By(p)
		peers = append(peers, p)
	}
	m := newMetrics("mf_cache", []total{
		{"pieces_total", "Pieces and manifests that were asked for: hits, misses, and of these failed; unkept are those that the disk did not take or give back.", func() map[string]uint64 {
			n := c.Counters()
			return map[string]uint64{"hits": n.Hits, "misses": n.Misses, "failed": n.Failed, "unkept": n.Unkept}
		}},
	}, []gauge{
		{"pieces", "Pieces and manifests on disk.", func() float64 { return float64(c.Counters().Pieces) }},
		{"bytes", "What they count of the size.", func() float64 { return float64(c.Counters().Bytes) }},
	})
	defer metrics.Serve(m, o.Log)()
	stop, err := ctl.serve(nodeapi.Options{Log: o.Log, Key: a.owner, Report: func() nodeapi.Report { return cacheReport(c) }, Metrics: m})
	if err != nil {
		return errors.Join(err, closeAll(hosts))
	}
	defer stop()
	n := c.Counters()
	o.Log.Info("cache runs", "name", host.Name, "dir", o.Dir, "pieces", n.Pieces, "bytes", n.Bytes)
	err = runAll(ctx, peers)
	n = c.Counters()
	o.Log.Info("cache ends", "hits", n.Hits, "misses", n.Misses, "failed", n.Failed, "unkept", n.Unkept, "pieces", n.Pieces, "bytes", n.Bytes)
	return err
}

// runAll runs peers until ctx ends or one of the peers ends.
func runAll(ctx context.Context, peers []*content.Peer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(peers))
	for _, p := range peers {
		go func() { defer cancel(); ended <- p.Run(ctx) }()
	}
	var errs []error
	for range peers {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// cacheReport returns the report of a cache.
func cacheReport(c *content.Cache) nodeapi.Report {
	n := c.Counters()
	return nodeapi.Report{Cache: &nodeapi.CacheReport{
		Contents: n.Contents, Pieces: n.Pieces, Bytes: n.Bytes, Size: c.Size, Hits: n.Hits, Misses: n.Misses, Failed: n.Failed,
	}}
}

// closeAll closes clients, which detaches their names.
func closeAll(hosts []*hostapi.Client) (err error) {
	for _, h := range hosts {
		err = errors.Join(err, h.Close())
	}
	return err
}
