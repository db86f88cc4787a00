package fieldrules

import (
	"cmp"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
)

// listChecks returns the checks of a list or map by its RepeatedRules or MapRules, and of its elements by
// the field of that name.
func listChecks(rules protoreflect.Message, elementsName protoreflect.Name) (whole, elements []check, err error) {
	var rest []string
	for rule, value := range rules.Range {
		switch name := rule.Name(); name {
		case elementsName:
			e := field{}
			if err = e.add(value.Message()); err == nil && e.required {
				rest = append(rest, "required of an element")
			}
			elements = e.whole
		case "min_items":
			whole = append(whole, atLeast(value.Uint(), listLen, "repeated.min_items", "must contain at least %d item(s)"))
		case "max_items":
			whole = append(whole, atMost(value.Uint(), listLen, "repeated.max_items", "must contain no more than %d item(s)"))
		case "max_pairs":
			whole = append(whole, atMost(value.Uint(), mapLen, "map.max_pairs", "map must be at most %d entries"))
		default:
			rest = append(rest, string(rule.FullName()))
		}
	}
	return whole, elements, cmp.Or(err, unknown(rest...))
}

// valueChecks returns the checks of a value by the rules of its kind, such as StringRules.
func valueChecks(kind protoreflect.FieldDescriptor, rules protoreflect.Value, fd protoreflect.FieldDescriptor) ([]check, error) {
	switch kind.Name() {
	case "string":
		return stringChecks(rules.Message())
	case "enum":
		return enumChecks(rules.Message(), fd)
	case "float", "double", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "duration":
		return rangeChecks(string(kind.Name()), rules.Message())
	default:
		return nil, unknown(string(kind.FullName()))
	}
}

func stringChecks(rules protoreflect.Message) (checks []check, err error) {
	var rest []string
	for rule, value := range rules.Range {
		switch rule.Name() {
		case "min_len":
			checks = append(checks, atLeast(value.Uint(), runes, "string.min_len", "must be at least %d characters"))
		case "max_bytes":
			checks = append(checks, atMost(value.Uint(), byteLen, "string.max_bytes", "must be at most %d bytes"))
		default:
			rest = append(rest, string(rule.FullName()))
		}
	}
	return checks, unknown(rest...)
}

func enumChecks(rules protoreflect.Message, fd protoreflect.FieldDescriptor) (checks []check, err error) {
	var rest []string
	for rule, value := range rules.Range {
		if rule.Name() != "defined_only" || fd == nil {
			rest = append(rest, string(rule.FullName()))
			continue
		}
		if defined := fd.Enum().Values(); value.Bool() {
			checks = append(checks, func(v protoreflect.Value) *ViolationError {
				if defined.ByNumber(v.Enum()) != nil {
					return nil
				}
				return &ViolationError{Rule: "enum.defined_only", Text: "value must be one of the defined enum values"}
			})
		}
	}
	return checks, unknown(rest...)
}

func listLen(v protoreflect.Value) int { return v.List().Len() }
func mapLen(v protoreflect.Value) int  { return v.Map().Len() }
func byteLen(v protoreflect.Value) int { return len(v.String()) }
func runes(v protoreflect.Value) int   { return utf8.RuneCountInString(v.String()) }

// atLeast checks that the size of a value is no less than least. The text gets least.
func atLeast(least uint64, size func(protoreflect.Value) int, rule, text string) check {
	return func(v protoreflect.Value) *ViolationError {
		if uint64(size(v)) >= least {
			return nil
		}
		return &ViolationError{Rule: rule, Text: fmt.Sprintf(text, least)}
	}
}

// atMost checks that the size of a value is no more than most. The text gets most.
func atMost(most uint64, size func(protoreflect.Value) int, rule, text string) check {
	return func(v protoreflect.Value) *ViolationError {
		if uint64(size(v)) <= most {
			return nil
		}
		return &ViolationError{Rule: rule, Text: fmt.Sprintf(text, most)}
	}
}

// rangeChecks returns the checks of a number or duration: first that it is finite, then its bounds.
func rangeChecks(kind string, rules protoreflect.Message) (checks []check, err error) {
	var lower, upper bound
	var rest []string
	for rule, value := range rules.Range {
		switch name := string(rule.Name()); name {
		case "gt":
			lower = bound{name, "greater than ", value, func(order int) bool { return order > 0 }}
		case "gte":
			lower = bound{name, "greater than or equal to ", value, func(order int) bool { return order >= 0 }}
		case "lt":
			upper = bound{name, "less than ", value, func(order int) bool { return order < 0 }}
		case "lte":
			upper = bound{name, "less than or equal to ", value, func(order int) bool { return order <= 0 }}
		case "finite":
			if value.Bool() {
				checks = append(checks, func(v protoreflect.Value) *ViolationError {
					if math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
						return &ViolationError{Rule: kind + ".finite", Text: "must be finite"}
					}
					return nil
				})
			}
		default:
			rest = append(rest, string(rule.FullName()))
		}
	}
	within, err := boundsCheck(kind, lower, upper)
	if within != nil {
		checks = append(checks, within)
	}
	return checks, cmp.Or(err, unknown(rest...))
}

// bound is a limit of a range.
type bound struct {
	name, text string // name is "" if there is no limit
	limit      protoreflect.Value
	holds      func(order int) bool // of the order of a value and the limit
}

// allows reports whether a value is within the bound. NaN is not.
func (b bound) allows(v protoreflect.Value) bool {
	if b.name == "" {
		return true
	}
	order, ok := compare(v, b.limit)
	return ok && b.holds(order)
}

// boundsCheck returns the check of one or both bounds, or nil if there is none.
func boundsCheck(kind string, lower, upper bound) (check, error) {
	v := ViolationError{}
	switch {
	case lower.name == "" && upper.name == "":
		return nil, nil
	case upper.name == "":
		v = ViolationError{Rule: kind + "." + lower.name, Text: "must be " + lower.String()}
	case lower.name == "":
		v = ViolationError{Rule: kind + "." + upper.name, Text: "must be " + upper.String()}
	default:
		if order, ok := compare(lower.limit, upper.limit); !ok || order > 0 {
			return nil, unknown(kind + " outside a range")
		}
		v = ViolationError{Rule: kind + "." + lower.name + "_" + upper.name, Text: "must be " + lower.String() + " and " + upper.String()}
	}
	return func(value protoreflect.Value) *ViolationError {
		if lower.allows(value) && upper.allows(value) {
			return nil
		}
		return &v
	}, nil
}

// String says what the bound asks for, such as "greater than 0".
func (b bound) String() string {
	if d, ok := asDuration(b.limit); ok {
		return b.text + fmt.Sprintf("%gs", d.AsDuration().Seconds())
	}
	return b.text + fmt.Sprint(b.limit.Interface())
}

// compare returns the order of two values of one kind; false if one is NaN.
func compare(a, b protoreflect.Value) (order int, ok bool) {
	switch x := a.Interface().(type) {
	case float32, float64:
		return cmp.Compare(a.Float(), b.Float()), !math.IsNaN(a.Float()) && !math.IsNaN(b.Float())
	case uint32, uint64:
		return cmp.Compare(a.Uint(), b.Uint()), true
	case int32, int64:
		return cmp.Compare(a.Int(), b.Int()), true
	case protoreflect.Message:
		left, _ := asDuration(a)
		right, _ := asDuration(b)
		return cmp.Or(cmp.Compare(left.GetSeconds(), right.GetSeconds()), cmp.Compare(left.GetNanos(), right.GetNanos())), true
	default:
		panic(fmt.Sprintf("fieldrules: %T has no order", x))
	}
}

func asDuration(v protoreflect.Value) (d *durationpb.Duration, ok bool) {
	if m, isMessage := v.Interface().(protoreflect.Message); isMessage {
		d, ok = m.Interface().(*durationpb.Duration)
	}
	return d, ok
}
