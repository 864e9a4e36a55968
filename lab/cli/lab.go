package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/lab"
)

// labFlags holds the flags that all lab commands share.
type labFlags struct {
	app     *app
	runDir  string
	lab     string
	shaping string
}

func (f *labFlags) options() lab.Options {
	return lab.Options{RunDir: f.runDir, Shaping: f.shaping, Logf: f.app.Printf, ByThread: true}
}

// labCommands returns the commands that work on a lab.
func labCommands(a *app) []*cobra.Command {
	f := &labFlags{app: a}
	all := []*cobra.Command{f.upCommand(), f.execCommand(), f.statusCommand(), f.linkCommand(), f.downCommand(), f.hostileSwitchCommand()}
	for _, cmd := range all {
		command.EnvFlag(cmd.PersistentFlags(), &f.runDir, "run-dir", "", "SLUICE_LAB_DIR", lab.DefaultRunDir, "folder where labs are recorded")
	}
	return append(all, generateCommand(a), reflectorCommand())
}

func (f *labFlags) nameFlag(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.lab, "lab", "l", "", "name of the lab; needed only if several are up")
}

// open returns the lab that the flags name or, if they name none, the only lab that is up.
func (f *labFlags) open() (*lab.Lab, error) {
	name, err := f.only()
	if err != nil {
		return nil, err
	}
	return lab.Open(name, f.options())
}

func (f *labFlags) only() (string, error) {
	if f.lab != "" {
		return f.lab, nil
	}
	names, err := lab.Names(f.runDir)
	if err != nil {
		return "", err
	}
	switch len(names) {
	case 1:
		return names[0], nil
	case 0:
		return "", lab.ErrNoLab
	}
	return "", &command.UsageError{Err: fmt.Errorf("several labs are up (%s): name one with --lab", strings.Join(names, ", "))}
}

func (f *labFlags) upCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up FILE",
		Short: "Build the network of a topology file",
		Args:  command.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := loadTopology(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			if f.lab != "" {
				t.Name = f.lab
			}
			start := time.Now()
			l, err := lab.Up(cmd.Context(), t, f.options())
			if err != nil {
				return err
			}
			f.app.Printf("lab %s is up after %.1f s", l.Name(), time.Since(start).Seconds())
			return f.print(cmd.Context(), l)
		},
	}
	cmd.Flags().StringVarP(&f.lab, "lab", "l", "", "name of the lab instead of the file's")
	cmd.Flags().StringVar(&f.shaping, "shaping", lab.ShapingAuto, "how links get rate, delay and loss: auto, netem or delayline")
	return cmd
}

// loadTopology reads a file, or standard input for "-".
func loadTopology(in io.Reader, file string) (lab.Topology, error) {
	if file != "-" {
		return lab.Load(file)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return lab.Topology{}, err
	}
	return lab.Parse("standard input", b)
}

func (f *labFlags) execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec NODE -- COMMAND [ARGUMENT...]",
		Short: "Run a command on a host or switch, or in the control network (ctl)",
		Args:  command.AtLeast("NODE", "COMMAND"),
		RunE: func(cmd *cobra.Command, args []string) error {
			node, args := args[0], args[1:]
			if args[0] == "--" {
				args = args[1:]
			}
			if len(args) == 0 {
				return &command.UsageError{Err: fmt.Errorf("%s: COMMAND is missing after --", cmd.CommandPath())}
			}
			l, err := f.open()
			if err != nil {
				return err
			}
			n, err := l.Node(node)
			if err != nil {
				return err
			}
			c := n.Command(cmd.Context(), args[0], args[1:]...)
			path, err := exec.LookPath(c.Path)
			if err != nil {
				return err
			}
			// The command replaces this program, so that it gets the terminal and the signals.
			return fmt.Errorf("run %s: %w", args[0], syscall.Exec(path, c.Args, os.Environ()))
		},
	}
	f.nameFlag(cmd)
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (f *labFlags) downCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down [LAB...]",
		Short: "Remove a lab and everything it made, also after a crash",
		RunE: func(cmd *cobra.Command, args []string) error {
			names := args
			switch {
			case all && len(args) > 0:
				return &command.UsageError{Err: errors.New("name labs or say --all, not both")}
			case all:
				var err error
				if names, err = lab.Names(f.runDir); err != nil {
					return err
				}
			case len(args) == 0:
				name, err := f.only()
				if err != nil {
					return err
				}
				names = []string{name}
			}
			var errs error
			for _, name := range names {
				err := lab.Down(cmd.Context(), name, f.options())
				if err == nil {
					f.app.Printf("lab %s is down", name)
				}
				errs = errors.Join(errs, err)
			}
			return errs
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "take down all labs that are recorded")
	return cmd
}

func (f *labFlags) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [LAB]",
		Short: "Show a lab's hosts, switches and links, with the links' counters",
		Args:  command.UpTo("LAB"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.lab = args[0]
			}
			l, err := f.open()
			if errors.Is(err, lab.ErrNoLab) && f.lab == "" {
				f.app.Printf("no lab is up")
				return nil
			}
			if err != nil {
				return err
			}
			return f.print(cmd.Context(), l)
		},
	}
	return cmd
}

// print prints the status of a lab, or of some of its links.
func (f *labFlags) print(ctx context.Context, l *lab.Lab, links ...string) error {
	st := l.Status(ctx)
	if len(links) > 0 {
		wanted := map[string]bool{}
		for _, name := range links {
			wanted[name] = true
		}
		kept := st.Links[:0]
		for _, k := range st.Links {
			if wanted[k.Name] {
				kept = append(kept, k)
			}
		}
		st = lab.Status{Name: st.Name, Links: kept}
	}
	return f.app.Print(st, func(w io.Writer) { writeLabStatus(w, st) })
}
