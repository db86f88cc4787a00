package recorder

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Unset returns the exported fields of a struct that are zero and not listed in
// except. A test that fills every field of a request checks with Unset that it forgot
// none; the check fails when the struct gets a new field.
func Unset(v any, except map[string]string) (names []string) {
	of := reflect.Indirect(reflect.ValueOf(v))
	for i := range of.NumField() {
		f := of.Type().Field(i)
		if _, excepted := except[f.Name]; !excepted && f.IsExported() && of.Field(i).IsZero() {
			names = append(names, f.Name)
		}
	}
	return names
}

// Unknown returns the exported fields of a struct that a table does not list, and the
// entries of the table that are not fields of the struct.
func Unknown(v any, table map[string]string) (names []string) {
	left := maps.Clone(table)
	of := reflect.Indirect(reflect.ValueOf(v)).Type()
	for i := range of.NumField() {
		f := of.Field(i)
		if _, named := left[f.Name]; !named && f.IsExported() {
			names = append(names, f.Name)
		}
		delete(left, f.Name)
	}
	return append(names, slices.Sorted(maps.Keys(left))...)
}

// Differences compares two structs of one type and returns a line for each field that
// differs.
func Differences(got, want any) (lines []string) {
	g, w := reflect.Indirect(reflect.ValueOf(got)), reflect.Indirect(reflect.ValueOf(want))
	if !g.IsValid() || g.Type() != w.Type() {
		return []string{fmt.Sprintf("is a %T, want a %T", got, want)}
	}
	for i := range g.NumField() {
		f := g.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		if a, b := g.Field(i).Interface(), w.Field(i).Interface(); !equalFields(a, b) {
			lines = append(lines, fmt.Sprintf("%s is %+v, want %+v", f.Name, a, b))
		}
	}
	return lines
}

// equalFields compares two values and treats a nil slice as an empty slice.
func equalFields(a, b any) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if x.Kind() == reflect.Slice && x.Len() == 0 && y.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a, b)
}

// copyOf copies a value and the slices in it.
func copyOf(v any) any {
	if v == nil {
		return nil
	}
	return deep(reflect.ValueOf(v)).Interface()
}

func deep(v reflect.Value) reflect.Value {
	switch v.Kind() { // other kinds hold nothing that a caller could change
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(deep(v.Index(i)))
		}
		return out
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(deep(v.Field(i)))
			}
		}
		return out
	}
	return v
}
