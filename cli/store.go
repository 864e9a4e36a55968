package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-net/sluice/cli/command"
	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/kit/commands"
	"github.com/sluice-net/sluice/store/pebblestore"
)

// storeTimeout bounds an operation on a store.
const storeTimeout = 5 * time.Minute

func storeCommand(app *commands.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Check and restore the state of a controller that does not run",
		Long: `With store.kind embedded a controller keeps its state in its data folder: a database
below store/, and copies of its content below snapshots/. These commands work on the
folder itself, on the controller's machine, while the controller is stopped.`,
		Example: `  sluice store check
  sluice store list
  sluice store restore --latest`,
	}
	var dir string
	cmd.PersistentFlags().StringVar(&dir, "dir", config.DefaultDataDir(), "data folder of the controller, data_dir of its configuration")
	cmd.AddCommand(storeCheckCommand(app, &dir), storeListCommand(app, &dir), storeRestoreCommand(app, &dir), storeResetCommand(app, &dir))
	return cmd
}

func storeCheckCommand(app *commands.App, dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Report whether each part of the store is whole",
		Long: `Reads the whole store and changes nothing. It checks the checksum of each block and of
each entry, the number of entries and the sum of their checksums, and whether the last
acknowledged change is present. A controller does the same when it starts. The exit
code is 1 if something is damaged, and the last line names a remedy. Damaged stores
that have been put aside are listed as well.`,
		Example: `  sluice store check --dir /var/lib/sluice`,
		Args:    command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), storeTimeout)
			defer cancel()
			report, err := pebblestore.Check(ctx, *dir)
			if err != nil {
				return err
			}
			if err := app.Print(report, func(w io.Writer) { printParts(w, report) }); err != nil {
				return err
			}
			return report.Err()
		},
	}
}

func printParts(w io.Writer, r pebblestore.Report) {
	if len(r.Parts) == 0 {
		fmt.Fprintf(w, "%s\tholds no store yet\n", r.Dir)
		return
	}
	fmt.Fprintln(w, "PART\tSTATE\tPATH")
	for _, p := range r.Parts {
		state := "whole"
		if p.Fault != "" {
			state = "damaged"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, state, p.Path)
	}
	for _, a := range r.Aside {
		fmt.Fprintf(w, "damaged store\tput aside\t%s\n", a.Path)
	}
}

func storeListCommand(app *commands.App, dir *string) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the snapshots, the latest first",
		Example: `  sluice store list --dir /var/lib/sluice`,
		Args:    command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := pebblestore.Snapshots(*dir)
			if err != nil {
				return err
			}
			if all == nil {
				all = []pebblestore.Snapshot{}
			}
			table := commands.Table[pebblestore.Snapshot]("")
			return app.Print(all, func(w io.Writer) { table(w, all) })
		},
	}
}

func storeRestoreCommand(app *commands.App, dir *string) *cobra.Command {
	var latest bool
	cmd := &cobra.Command{
		Use:   "restore SNAPSHOT | restore --latest",
		Short: "Replace the store by a snapshot",
		Long: `Makes a new store from a snapshot. It replaces the old store, which is kept beside it
as store.damaged-TIME. Changes since the snapshot are lost. The command is refused
while a controller uses the folder. If it fails, nothing has changed. The new files
belong to the owner of the data folder.`,
		Example: `  sluice store restore --latest
  sluice store restore /var/lib/sluice/snapshots/20260102T030405.678Z.snapshot`,
		Args: func(cmd *cobra.Command, args []string) error {
			if latest {
				return command.NoArgs(cmd, args)
			}
			return command.ExactArgs("SNAPSHOT (or --latest)")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := snapshotToRestore(*dir, args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), storeTimeout)
			defer cancel()
			done, err := pebblestore.Restore(ctx, *dir, file)
			if err != nil {
				return err
			}
			return app.Print(done, func(w io.Writer) { commands.Fields(w, done) })
		},
	}
	cmd.Flags().BoolVar(&latest, "latest", false, "the latest snapshot below the data folder")
	return cmd
}

func storeResetCommand(app *commands.App, dir *string) *cobra.Command {
	return &cobra.Command{
		Use:   "reset",
		Short: "Replace the store by an empty one",
		Long: `Gives up the stored state: the next start begins with an empty store. A controller
never does this by itself if there has been a store. The old store is kept beside it
as store.damaged-TIME. The command is refused while a controller uses the folder.`,
		Example: `  sluice store reset --dir /var/lib/sluice`,
		Args:    command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), storeTimeout)
			defer cancel()
			done, err := pebblestore.Reset(ctx, *dir)
			if err != nil {
				return err
			}
			return app.Print(done, func(w io.Writer) { commands.Fields(w, done) })
		},
	}
}

// snapshotToRestore returns the named snapshot, or the latest one.
func snapshotToRestore(dir string, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	all, err := pebblestore.Snapshots(dir)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", errors.New("there is no snapshot below " + dir + ": is --dir the controller's data_dir?")
	}
	return all[0].Path, nil
}
