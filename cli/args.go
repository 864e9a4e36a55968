package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/internal/units"
)

// ExactArgs wants one argument for each name, and says which is missing.
func ExactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return &UsageError{fmt.Errorf("%s: %s is missing", cmd.CommandPath(), strings.Join(names[len(args):], " "))}
		case len(args) > len(names):
			return &UsageError{fmt.Errorf("%s: %q is one argument too many", cmd.CommandPath(), args[len(names)])}
		}
		return nil
	}
}

// atLeast wants an argument for each name, and allows more.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return ExactArgs(names...)(cmd, args[:min(len(args), len(names))])
	}
}

// upTo allows an argument for each name.
func upTo(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return ExactArgs(names[:min(len(args), len(names))]...)(cmd, args)
	}
}

// flagError says what is wrong with a flag's value in words instead of those of a library.
func flagError(_ *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return &UsageError{err}
	}
	want := map[string]string{
		"int": "a whole number", "float64": "a number", "duration": "a time with its unit, like 30s or 1m30s", "bool": "true or false",
	}[invalid.GetFlag().Value.Type()]
	if want == "" {
		return &UsageError{err}
	}
	return &UsageError{fmt.Errorf("--%s %q: write %s", invalid.GetFlag().Name, invalid.GetValue(), want)}
}

func noArgs(cmd *cobra.Command, args []string) error { return ExactArgs()(cmd, args) }

// oneOfArgs wants one argument out of the words.
func oneOfArgs(words ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := ExactArgs(strings.Join(words, "|"))(cmd, args); err != nil {
			return err
		}
		if !slices.Contains(words, args[0]) {
			return &UsageError{fmt.Errorf("%s: %q is not one of %s", cmd.CommandPath(), args[0], strings.Join(words, ", "))}
		}
		return nil
	}
}

// word is a flag that takes one of several words.
type word struct {
	to    *string
	words []string
}

func newWord(to *string, initial string, words ...string) *word {
	*to = initial
	return &word{to, words}
}

func (w *word) String() string { return *w.to }
func (w *word) Type() string   { return strings.Join(w.words, "|") }
func (w *word) Set(s string) error {
	if !slices.Contains(w.words, s) {
		return fmt.Errorf("use one of %s", strings.Join(w.words, ", "))
	}
	*w.to = s
	return nil
}

// quantity is a flag that takes a number with its unit.
type quantity[T any] struct {
	to     *T
	kind   string
	parse  func(string) (T, error)
	format func(T) string
}

func rateFlag(to *float64) *quantity[float64] {
	return &quantity[float64]{to, "rate", units.ParseRate, units.FormatRate}
}

func sizeFlag(to *int64) *quantity[int64] {
	return &quantity[int64]{to, "size", units.ParseSize, units.FormatSize}
}

func shareFlag(to *float64) *quantity[float64] {
	return &quantity[float64]{to, "share", units.ParseShare, units.FormatShare}
}

func (q *quantity[T]) String() string { return q.format(*q.to) }
func (q *quantity[T]) Type() string   { return q.kind }
func (q *quantity[T]) Set(s string) (err error) {
	*q.to, err = q.parse(s)
	return err
}
