package command

import (
	"errors"
	"fmt"
	"os"
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

// AtLeast wants an argument for each name, and allows more.
func AtLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		return ExactArgs(names...)(cmd, args[:min(len(args), len(names))])
	}
}

// UpTo allows an argument for each name.
func UpTo(names ...string) cobra.PositionalArgs {
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

// NoArgs wants no argument.
func NoArgs(cmd *cobra.Command, args []string) error { return ExactArgs()(cmd, args) }

// OneOf wants one argument out of the words.
func OneOf(words ...string) cobra.PositionalArgs {
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

type word struct {
	to    *string
	words []string
}

// EnvFlag defines a flag whose value, where it is not given, is that of an environment
// variable, or else the fallback. short is its one letter, or empty.
func EnvFlag(f *pflag.FlagSet, to *string, name, short, env, fallback, usage string) {
	f.StringVarP(to, name, short, fallback, usage+" (environment: "+env+")")
	if v := os.Getenv(env); v != "" {
		*to = v
	}
}

// Word makes a flag that takes one of several words.
func Word(to *string, initial string, words ...string) pflag.Value {
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

// RateFlag makes a flag that takes a rate, as 300Mbit, in bits per second.
func RateFlag(to *float64) pflag.Value {
	return &quantity[float64]{to, "rate", units.ParseRate, units.FormatRate}
}

// SizeFlag makes a flag that takes a size, as 100MB, in bytes.
func SizeFlag(to *int64) pflag.Value {
	return &quantity[int64]{to, "size", units.ParseSize, units.FormatSize}
}

// ShareFlag makes a flag that takes a share, as 0.05%.
func ShareFlag(to *float64) pflag.Value {
	return &quantity[float64]{to, "share", units.ParseShare, units.FormatShare}
}

func (q *quantity[T]) String() string { return q.format(*q.to) }
func (q *quantity[T]) Type() string   { return q.kind }
func (q *quantity[T]) Set(s string) (err error) {
	*q.to, err = q.parse(s)
	return err
}
