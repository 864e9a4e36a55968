// Package units is the one grammar of rates, sizes, times and shares: on the command
// line, in YAML files and in JSON. docs/reference/units.md describes it. Start with
// ParseRate; Rate is a rate in a file or an answer.
package units
