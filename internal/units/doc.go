// Package units parses and formats rates, sizes, times and shares, in the same way on the command
// line, in YAML files and in JSON. docs/reference/units.md describes the formats. Start reading
// with ParseRate. Rate is a rate in a file or in an answer of the API.
package units
