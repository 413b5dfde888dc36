"""Requests that are refused: wrong values of each field, and combinations, with the message that names them.

All are checked by `make_release`, in this process. That messages reach users is tested of the three commands below, of
config files in test_config_file, of Python in test_privatize_files and of YAML in test_beam_yaml.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from labeldp import LabelPrivatizer
from labeldp.mechanisms import Prior, solve
from labeldp.mechanisms.release.drawing import Table
from labeldp.pipelines.cli.commands import command_parser
from labeldp.pipelines.errors import FieldError
from labeldp.pipelines.spec.fields import Fields, declared, flag_name
from labeldp.pipelines.spec.mechanism_file import MechanismFile
from labeldp.pipelines.spec.prior_file import read_prior

from tests.audit.written_files import change_members

from .conftest import NUMBERS, log_table

pytestmark = pytest.mark.filterwarnings("ignore::labeldp.ReleaseWarning")
COLUMNS = "id, x, word, day, user, y, z, grade, bought"
COMMANDS = ("privatize", "fit", "apply")
FIT: dict[str, Any] = {"command": "fit"}
NO_GRID: dict[str, Any] = dict.fromkeys(("label_min", "label_max", "label_step"))
UNEVEN = {**NO_GRID, "label_values": (0, 1, 3)}
CLASSES = {**NO_GRID, "label": "grade", "label_classes": "low,high"}
SEVERAL = {"label": "y,z"}
TWO_KINDS = {"label": "grade,y", "label_classes": "grade=low,high"}
NO_CENTER = {"center": "none"}
PARQUET = {"input": "log.parquet", "input_format": "parquet"}
LOGS: dict[str, dict[str, str]] = {"log.csv": {}, "log.parquet": PARQUET}
NESTED = {"input": "nested.parquet", "input_format": "parquet"}
TFRECORD = {"input": "log.tfrecord", "input_format": "tfrecord"}
MONTHS = {"input": "month=*/log.csv"}
BY_MONTH = {**MONTHS, "partition_output": "month"}
UNIT = {"unit_column": "user", "max_records_per_unit": 3}
GAUSSIAN = {"mechanism": "gaussian"}
NEEDS = {
    "delta://": "deltalake", "sql": "sqlalchemy", "postgres": "sqlalchemy",
    ".pbtxt": "tensorflow_data_validation",
}  # fmt: skip
"""Modules of extras by a part of what needs them."""

NO_DOMAIN = "the public label domain is missing: give --label_max, and --label_min and --label_step where "


def applied(file: str, **more: Any) -> dict[str, Any]:
    """Fields of `apply` with a mechanism file."""
    return {"command": "apply", "mechanism_file": f"{file}.json", **more}


def no_column(name: str, meant: str, value: str | None = None, more: Any = ()) -> list[tuple[Any, ...]]:
    """The column does not exist in CSV, nor in Parquet; those that do are listed."""
    said = f": there is no column {name!r} in {{}}; it has: {COLUMNS}; did you mean {meant}?"
    return [(value or name, said.format(log), {**format, **dict(more)}) for log, format in LOGS.items()]


REFUSED: dict[str, list[tuple[Any, ...]]] = {
    "input": [
        (["a"], " must be text, not ['a']"),
        ("none-*.csv", " none-*.csv matches no file: check the path and quote the glob"),
        *((path, f"{path}: the shell has not expanded ~: write the whole path") for path in ("~/x", "~", "~some/x")),
        ("latin/*", " 'latin/caf\\udce9.csv': the file name is not UTF-8; rename the file"),
        ("mixed/*/*.csv", "its folders give the partition columns none"),
        ("twin.csv", "--mechanism_file: there is no column 'x' in twin.csv; it has: f, y, Y", applied("column")),
    ],
    "input_format": [("xml", ": unknown value 'xml'; known: tfrecord, parquet, csv, orc")],
    "csv_types": [
        ("id=duration", " of 'id' must be one of int64, uint64, float64, string, date, timestamp, not 'duration'"),
        *((text, " takes NAME=TYPE,..., each name once, not ") for text in ("id", "=date", "id=", "id=date,id=date")),
        (["x"], " must be text, or a mapping, not ['x']"),
        *((wrong, " must have names as keys") for wrong in ({1: "string"}, {"": "string"})),
    ],
    "csv_dialect": [
        ("delimiter=ab", " delimiter must be one character"), ("encoding=klingon", " encoding must be a text encoding"),
        ("decimal=;", " decimal must be one of"), ("thousands=x", " thousands must be a point, a comma"),
        ("columns=f,,y", " columns must be names of columns, each of one line"),
        ("newlines=perhaps", " newlines must be true or false"), ("newlines", " newlines must be true or false"),
        ({"columns": [1]}, " columns must be names"), ({"delimiter": 3}, " delimiter must be text"),
        ("encodign=latin-1", ": unknown setting 'encodign'; known: delimiter, encoding, decimal, thousands, columns, "
         "newlines; did you mean encoding?"),
    ],
    "partitions": [("hiv", ": unknown value 'hiv'; known: hive, none; did you mean hive?")],
    "missing_columns": [("null", " null takes --input_format parquet")],
    "where": [
        ("id", " takes NAME=VALUE, not 'id'"), ("=1", " takes NAME=VALUE, not '=1'"),
        ("y=1", " must not use the label: the choice of released records would depend on it"),
        ("z=1", " must not name the label z: it is private", SEVERAL), *no_column("wrd", "word", "wrd=a"),
        ("mnth=1", f"no column 'mnth' in month=1/log.csv; it has: {COLUMNS}, month; did you mean month?", MONTHS),
    ],
    "id_column": [
        ("y", " must be another column than --label"), *no_column("ID", "id"),
        ("z", " must not name the label z: it is private", SEVERAL),
        ("month", " month is a folder of the input, month=..., whose name is public", MONTHS),
    ],
    "max_unusable_fraction": [(value, f" must be between 0 and 1, not {value}") for value in (1.1, -0.1, np.nan)],
    "label": [
        (None, " is missing"), *no_column("yy", "y"),
        *((wrong, f" must be text, or a list of texts, not {wrong}") for wrong in (3, [], ["y", None])),
        ("y", ": semicolons.csv: there is no column 'y' in the header line, which ';' divides into columns: use "
         "--csv_dialect delimiter=';'", {"input": "semicolons.csv"}),
        ("y", " 'y': twin.csv also has a column 'Y', which would be released as it is: drop or rename it, or give "
         "--leave_out Y", {"input": "twin.csv"}),
        *(("y", f" 'y': {name}.parquet also has a field 'event.{inner}', which would be released as it is: drop or "
           "rename it, or give --leave_out event", {**PARQUET, "input": f"{name}.parquet"})
          for name, inner in (("struct", "a. Y"), ("structs", "y"), ("two", "y"), ("map", "Y"), ("maps", "a.y"))),
        *((name, f" {name.split(',')[-1]}: files of the input lie in folders month=..., so the file of a record, which "
           "is public, tells its label: write the log again in one folder", {**MONTHS, "partitions": read})
          for name in ("month", "Month", "y,month") for read in ("hive", "none")),
        ("y,,z", " y,,z: a name between two commas is empty"),
        ("y,z,y", " y,z,y names a column twice: give every label once"),
        ("y,zz", f": there is no column 'zz' in log.csv; it has: {COLUMNS}; did you mean z?"),
        (",".join(map(str, range(33))), ": at most 32 labels, not 33: each gets a part of epsilon"),
        ("y,z", " y,z: fit takes one label; run it for each of them, or privatize for all together", FIT),
        *((name, f" {name} is a feature of the center of --mechanism_", applied("linear")) for name in ("x", "word")),
        ("x", "the center of --mechanism_file must be another column than --label", applied("column")),
    ],
    "label_min": [
        *((low, f" must be below label_max, but {low} >= 4") for low in (4, 5)),
        ("low", " must be a number, not 'low'"), (0, " is for labels that are numbers, not classes", CLASSES),
    ],
    "label_max": [
        (None, NO_DOMAIN), ("inf", " must be a number, not 'inf'"),
        ("1e400", " 1e400 or label_min 0 is above 1e+100 in magnitude", {"label_step": "1e399"}),
        ("1,4", " 1,4: give one value for all labels, or 3, one for each", {"label": "y,z,x"}),
        ("4,1,1", " 4,1,1: give one value for all labels, or 1, one for each", TWO_KINDS),
    ],
    "label_step": [
        *((None, f" is missing: it is 1 by default only between whole numbers that are further apart, not between 0 "
           f"and {high}", {"label_max": high}) for high in (1, 4.5)),
        (3, " 3 does not divide the range from 0 to 4"), ("nan", " must be a number, not 'nan'"),
        (0, " must be positive, not 0"), (-1, " must be positive, not -1"),
        ("1e-9", " 1e-9 makes 4000000001 labels; at most 1048576 are allowed"),
        # At once: no fraction of so many digits is made.
        *((step, " is out of the range of floats") for step in ("1e999999999", "1e-999999999", "1" * 2000, 10**5000)),
    ],
    "label_values": [
        ("none.txt", " none.txt cannot be read: check the path", NO_GRID),
        *((f"{name}.txt", f" {name}.txt: give one number per line, strictly ascending (", NO_GRID)
          for name in ("empty", "descending", "twice", "nan", "word")),
        ("many.txt", " many.txt: 5,000 labels that are not evenly spaced, of which at most 4,096", NO_GRID),
        ((0, 1), " replaces --label_min, --label_max and --label_step: give one or the other"),
        *((wrong, f" must be a file, or a list of numbers, not {shown}")
          for wrong, shown in ((["a"], "['a']"), (b"ab", "b'ab'"), (np.zeros((2, 2)), "array([[0., 0."))),
        ((0, 10**400), " is out of the range of floats"),
    ],
    "label_classes": [
        ("low,low", ": class 'low' is there twice", CLASSES), ("low,,high", ": a class must not be empty", CLASSES),
        (["low"], ": there must be 2 to 1,000 classes, not 1", CLASSES), (None, NO_DOMAIN, CLASSES),
        ([1.5], " must be a file, or a list of texts, integers or booleans, not [1.5]", CLASSES),
        ("none.txt", " none.txt cannot be read: give the classes with commas, or a file of one class", CLASSES),
        ("latin.txt", " latin.txt: the file is not text in UTF-8", CLASSES),
        ({"grade": "a,b"}, " and --other_class have names of labels only if there are several", CLASSES),
        ("low,high", ": with several labels give LABEL=CLASSES;..., each label of classes once", TWO_KINDS),
        ("grades=low,high", " names 'grades', which is not one of --label", TWO_KINDS),
        *(("low,high", f": log.parquet: label column {label!r} holds {kind}, and the classes of --label_classes are ",
           {**NO_GRID, **PARQUET, "label": label})
          for label, kind in (("z", "int64"), ("x", "double"), ("bought", "bool"))),
        # tf.Examples hold floats of 32 bits, which have no 16,777,217.
        ("16777216,16777217", "'x' holds float, and the classes of --label_classes are not integers of its type",
         {**NO_GRID, **PARQUET, "label": "x", "output_format": "tfrecord"}),
    ],
    "other_class": [
        ("low", " needs --label_classes, the public classes"), ("bad", " bad is not one of --label_classes", CLASSES),
        ("low", ": with several labels give LABEL=CLASS;..., each label of classes once", TWO_KINDS),
    ],
    "missing_label": [
        *((value, f" {value} is not within the label domain, 0 to 4") for value in (5, "nan")),
        (0.5, " 0.5 is not a label of the domain: the nearest one is 0"),
        (0.6, " 0.6 is not a label of the domain: the nearest one is 0.5", {"label_max": 1023.5, "label_step": 0.5}),
        ("none", " must be a number of the label domain, not 'none'"),
        (0, " takes one label: with several, records that lack one are left out", SEVERAL),
        ("bad", " bad is not one of the public classes", CLASSES),
        # A histogram of the labels that are there tells how many are missing, also after `solve`.
        *((given, said, applied(f"{way}{name}")) for way in ("", "solved_") for name, given, said in (
            ("m", 0, " 0 cannot be used with --mechanism_file "),
            ("missing", None, f" is missing: missing labels count as 0 in --mechanism_file {way}missing.json. Give "),
            ("missing", 1, f" 1 is not that of --mechanism_file {way}missing.json: give --missing_label 0, or fit "),
        )),
        (0.5, " 0.5 is not a label of the domain", applied("rr")),
        ("high", " high cannot be used with --mechanism_file ", applied("classes", label="grade")),
        ("high", " high is not that of --mechanism_file grades.json: give --missing_label low, or fit again",
         applied("grades", label="grade")),
    ],
    "mechanism": [
        ("magic", ": unknown mechanism 'magic'; known: "), ("rr:", " rr:: write NAME:PARAMETER=VALUE,... or NAME"),
        ("rr:x", " rr: takes PARAMETER=VALUE,..., each name once, not 'x'"),
        ("rr:name=1", " rr: name: no mechanism has such a parameter"),
        ("rr:loss=absolute", " rr: loss: give it as --loss"),
        ("gaussian:delta=0.1", " gaussian: delta: give it as --delta"),
        *(("rr:k=3", ": mechanism rr has no parameter 'k'", more) for more in ({}, CLASSES)),
        ("gaussian", ": gaussian is not pure label DP: it needs a --delta"),
        ("auto:bias=0.1", " auto has no parameters: it finds those of the mechanism itself"),
        ("auto", " auto is for models of the squared loss, not poisson: name a mechanism", {"loss": "poisson"}),
        ("unbiased", " unbiased is for labels that are numbers; classes take rr or rr_top_k", CLASSES),
    ],
    "for_": [
        ("model", ": unknown value 'model'; known: models, log_features, labels; did you mean models?"),
        ("models", " chooses the mechanism: give --for or --mechanism", {"mechanism": "rr"}),
    ],
    "loss": [
        ("cubic", ": unknown loss 'cubic'; known: squared, absolute, poisson"),
        *(("poisson", f": the poisson loss needs labels >= 0, but the domain starts at {low}", more)
          for low, more in ((-1, {"label_min": -1}), (-4, {"center_column": "x", "mechanism": "unbiased"}))),
        ("absolute", " is for labels that are numbers; that of classes is zero_one: leave it out", CLASSES),
    ],
    "epsilon": [
        (None, " is missing"), (10**400, " is out of the range of floats"),
        *((wrong, f" must be a number, not {wrong!r}") for wrong in ("much", True)),
        *((value, f" must be between 1e-09 and 30, not {value:g}") for value in (0, -1, np.nan, np.inf, 30.1, 1e-10)),
        *((value, f" must be at least 2e-09 for a histogram and labels, 1e-09 each, not {value:g}: 64-bit weights ")
          for value in (1e-9, 1.9e-9)),
        (np.nan, " must be between", SEVERAL),
    ],
    "prior_epsilon": [
        ("half", " must be a number, not 'half'"),
        *((value, f" must be at least 1e-09 and below epsilon 1, not {value:g}") for value in (0, -1, np.nan, 1, 2)),
    ],
    "delta": [
        (1e-6, " is for mechanisms of (epsilon, delta)-DP, such as gaussian; auto is pure DP"),
        (1e-6, "such as gaussian; unbiased is pure DP", {"mechanism": "unbiased", **UNIT}),
        (1e-6, "such as gaussian; rr is pure DP", CLASSES),
        *((value, f" must be above 0 and below 1, not {value}; for pure label DP leave", GAUSSIAN) for value in (0, 2)),
        (0.9, "--mechanism: delta must be between 1e-12 and 0.5, not 0.9", GAUSSIAN),
        *((value, " must be above 0 and below 1, not ", applied("gaussian")) for value in (np.nan, 7, -3)),
        *((value, "--mechanism_file gaussian.json is not pure DP: its epsilon holds with delta 1e-06. Give --delta ",
           applied("gaussian")) for value in (None, 1e-7)),
    ],
    "rounding": [
        ("up", " must be nearest or randomized, not 'up'"),
        ("randomized", " is for labels that are numbers, not classes of --label_classes", CLASSES),
        ("nearest", " must be randomized for 40,001 labels, of which the mechanism uses 501: the nearest of these "
         "would be biased. Leave it out, or give a label_step of 0.8", {"label_max": 400, "label_step": 0.01}),
    ],
    "unit_column": [
        ("user", " needs --max_records_per_unit"), ("y", " must be another column than --label", UNIT),
        *no_column("usr", "user", more={"max_records_per_unit": 3}),
        ("z", " must not name the label z: it is private", {**UNIT, **SEVERAL}),
        ("user", "--mechanism_file m.json was fitted without --unit_column: its histogram may hold any number of ",
         applied("m", max_records_per_unit=2)),
        ("id", " id is not that of --mechanism_file, user", applied("units")),
    ],
    "max_records_per_unit": [
        (2, " needs --unit_column, the column that names the unit of each record"),
        (0, " must be from 1 to 1,000,000, not 0", UNIT), ("many", " must be a whole number, not 'many'"),
        (999_999, " 999999 leaves each record too little of --epsilon 0.0001", {**UNIT, "epsilon": 1e-4}),
        (4, " 4 is not that of --mechanism_file, 3: leave it out, or fit again", applied("units", unit_column="user")),
    ],
    "center": [
        ("linaer", ": unknown value 'linaer'; known: cells, linear, marginals, none; did you mean linear?"),
        ("linear", ": a center needs evenly spaced labels", UNEVEN),
        ("linear", " linear: alone.csv has no column of numbers or texts besides the label", {"input": "alone.csv"}),
        ("linear", "--input has a column 'y_center': name the new column of centers with --center_column and --center "
         "linear, or leave that column out", {"input": "released.csv"}),
        ("linear", " linear is for labels that are numbers; that of classes is --center cells", CLASSES),
        ("marginals", " marginals is for labels that are numbers; that of classes is --center cells", CLASSES),
        ("cells", " draws classes by itself: leave out --mechanism and --for", {**CLASSES, "mechanism": "rr"}),
        ("cells", ": at most 128 classes can have one, not 200",
         {**CLASSES, "label_classes": (*map(str, range(200)),)}),
    ],
    "center_column": [
        ("y", " must be another column than --label: the center is released as it is"), *no_column("xx", "x"),
        ("x", "--center none has no --center_column", NO_CENTER), ("x", ": a center needs evenly spaced ", UNEVEN),
        ("x", "--input has a column 'x': name the new column of centers with --center_column", {"center": "linear"}),
        ("x", "--input has a column 'x': name the new column of probabilities with --center_column", CLASSES),
        ("x", "--center draws classes by itself: leave out --mechanism and --for", {**CLASSES, "mechanism": "rr"}),
        ("x", " x: give 2 different columns, one for each label, none of which is a label", SEVERAL),
    ],
    "center_features": [
        ([1], " must be text, or a list of texts, not [1]"), ("", ": log.csv has no column ''"),
        ("x", "--center none has no --center_features", NO_CENTER),
        *((name, " must not name the label: centers are released as they are", more)
          for name, more in (("y", {}), ("grade", CLASSES))),
        ("x,z", " must not name the label z: it is private", SEVERAL),
        *(("x,wrd", f": {log} has no column 'wrd' in its first records; it has: {COLUMNS}; did you mean word?", more)
          for log, more in LOGS.items()),
        ("day", ": 'day' holds date32[day], neither numbers nor text: leave it out"),
        ("struct", ": 'struct' holds struct<a: int64>, neither numbers nor text", NESTED),
        ("x", " and --leave_out name 'x': centers are released, and say what they are made of", {"leave_out": "x"}),
    ],
    "leave_out": [
        *no_column("usr", "user"), ("y", " y: the label is what is released, privatized"),
        ("usr", ": there is no column 'usr' in the first records of log.tfrecord; it has: ", TFRECORD),
        *(("x", " x: labels are released around a center that is this column, or made of it: leave it out of ", more)
          for more in ({"center_column": "x"}, applied("linear"), applied("column"))),
        ("month", " month: --partition_output writes it into the names of folders", BY_MONTH),
    ],
    "mechanism_file": [
        ("", " is empty: name a path", FIT), ("m[1].json", " m[1].json: Beam reads *, ?, [ and ] as a glob", FIT),
        ("log.csv", " log.csv exists: name another, or delete it", FIT),
        ("log.csv/m.json", " log.csv/m.json cannot be created: log.csv is not a writable folder", FIT),
        ("none.json", " none.json cannot be read: ", applied("m")),
        *((name, f" {name} cannot be used: ", applied("m"))
          for name in ("empty.txt", "list.json", "object.json", "text.json", "format.json")),
    ],
    "noise_key_file": [
        (b"hunter2", " must be text"),
        ("nowhere/none.key", ": noise key file nowhere/none.key does not exist: check the path"),
        ("none.key", ": noise key file none.key does not exist: check the path", applied("m")),
        ("none.key", ": noise key file none.key does not exist: check the path", {"noise_key_mode": "group"}),
        ("full", ": noise key file full is not a regular file"), ("~/x", " ~/x: the shell has not expanded ~"),
        ("out/noise.key", " out/noise.key lies inside --output, which is released: move it elsewhere"),
        ("short.key", ": noise key file short.key does not hold exactly 32 bytes: create one"),
        ("open.key", ": noise key file open.key is accessible to other users: run `chmod 600"),
    ],
    "noise_key_mode": [
        ("grup", ": unknown value 'grup'; known: owner, group; did you mean group?"),
        ("group", " group needs --noise_key_file: the default file is its owner's", {"noise_key_file": None}),
    ],
    "ledger": [
        (["postgresql://me:hunter2@host/db"], " must be text"), ("full", " full is a folder: name a file"),
        *((f"{kind}out/ledger", "--ledger out/ledger lies inside --output, which is released: name a path outside it")
          for kind in ("", "sqlite:///")),
        ("log.csv/ledger", " log.csv/ledger cannot be created: log.csv is not a writable folder"),
        ("~/x", " ~/x: the shell has not expanded ~"), ("mysql://u:hunter2@h/db", ": mysql:// is neither a filesystem"),
        ("postgres://u:hunter2@h/db", "postgres:// is no database that a ledger can be kept in: write sqlite:///FILE"),
        ("postgresql+psycopg2://u:hunter2@h/db", "postgresql+psycopg2:// is no database"),
        *((f"postgresql://u:{place}", "the URL of the database is malformed")
          for place in ("hunter2@h:port/db", "a@b:hunter2@h/db")),
        ("postgresql://u:a@hunter2@h/db", "more than one @: write %40"),
        ("postgresql://u:hunter2@h/db?ledger=a&ledger=b", "names several ledgers"),
        *((f"sqlite://{place}", "is sqlite:///FILE") for place in ("", "/:memory:", "u:hunter2@h/file")),
        ("sqlite:///file?mode=hunter2", "takes ?ledger=NAME and nothing else"),
    ],
    "epsilon_cap": [(cap, f" must be above 0 and finite, not {cap:g}") for cap in (0, -1, np.nan, np.inf)],
    "delta_cap": [(cap, f" must be at least 0 and below 1, not {cap:g}") for cap in (-1e-6, 1, np.nan)],
    "cap_window": [
        ("30d", " is the time in which a cap holds: give --epsilon_cap or --delta_cap"),
        *((text, " takes a whole number of hours, days or weeks, such as 12h, 30d or 4w, not ", {"delta_cap": 0})
          for text in ("30", "")),
    ],
    "output": [
        ("", " is empty: name a path"), ("o[1]", " o[1]: Beam reads *, ?, [ and ] as a glob; name a path without them"),
        *((name, f" {name} exists and is not an empty folder: name another") for name in ("full", "log.csv", "link")),
        ("log.csv/out", " log.csv/out cannot be created: log.csv is not a writable folder"),
        ("~/x", " ~/x: the shell has not expanded ~"),
        *((name, f" {name} lies in a folder of releases that are not published yet: name a path outside it")
          for name in ("s3://b/.o.labeldp", "gs://b/a/.o.labeldp/0/x")),
    ],
    "output_table": [
        ("t", " t is not of the form"), ("delta://t@1", " delta://t@1: a snapshot cannot be written to"),
        *(("delta://t", " takes shards of --output_format parquet, without --partition_output", more)
          for more in ({"output_format": "tfrecord"}, BY_MONTH)),
    ],
    "sign": [
        ("", " is empty: name the file of an Ed25519 private key"), ("~no/x", " ~no/x: the shell has not expanded ~"),
        ("s3://bucket/sign.pem", " s3://bucket/sign.pem: the key is read by this command alone"),
        ("out/sign.pem", " out/sign.pem lies inside --output, which is released: move it elsewhere"),
        ("none.pem", ": signing key file none.pem does not exist"),
        ("full", ": signing key file full is not a regular file"),
    ],
    "output_format": [
        ("csv", ": unknown value 'csv'; known: tfrecord, parquet"),
        ("tfrecord", " tfrecord: column 'struct' holds struct<a: int64>, which tf.Example cannot hold", NESTED),
    ],
    "num_shards": [
        (0, " must be from 1 to 99,999, not 0"), (100_000, " must be from 1 to 99,999, not 100,000"),
        (2.0, " must be a whole number, not 2.0"),
    ],
    "shuffle": [(1, " must be true or false, not 1")],
    "partition_output": [
        ("mnth", ": 'mnth' is no partition column of the input; these are: month; did you mean month?", MONTHS),
        ("x", ": 'x' is no partition column of the input", MONTHS),
        ("month,month", " names 'month' twice: give every column once", MONTHS),
        ("month", " month: the input has no partition columns, --partitions none ignores them",
         {**MONTHS, "partitions": "none"}),
        ("x", " x: the input has no partition columns, no folder is named KEY=VALUE"),
    ],
    "compression": [("zip", ": unknown value 'zip'; known: none, gzip")],
    "validate": [
        (1, " must be true, false or a file, not 1"), ("none.pbtxt", " none.pbtxt cannot be read"),
        ("bad.pbtxt", " bad.pbtxt: not a Schema as a text proto, at line"),
    ],
    "dry_run": [("yes", " must be true or false, not 'yes'")],
}  # fmt: skip
"""By field: its value, what the message says, and other fields that differ from a valid request.

A text that begins with a space or a colon follows the name of the flag.
"""
CASES = [
    pytest.param(field, value, said, dict(*more), id=f"{field} {place}")
    for field, rows in REFUSED.items()
    for place, (value, said, *more) in enumerate(rows)
]
ACCEPTED: list[dict[str, Any]] = [
    *({"command": command} for command in COMMANDS),
    CLASSES,
    {**NO_GRID, **PARQUET, "label": "x", "label_classes": "16777216,16777217"},
    {"input": "twin.csv", "leave_out": "Y"},
    *({**PARQUET, "input": f"{name}.parquet", "leave_out": "event"} for name in ("struct", "two", "map")),
    {"label_max": 1, "center": "linear"},
    {"center": "linear", "center_column": "new"},
    applied("linear", leave_out="user"),
    applied("gaussian", delta=1e-6),
    applied("missing", missing_label=0),
    applied("units", **UNIT),
]
"""Requests beside those that are refused."""


FITTED: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "m": ({}, {}),
    "missing": ({"missing_label": 0}, {}),
    "units": (UNIT, {"units": "user"}),
    "column": ({"center_column": "x"}, {"center": "x"}),
    "linear": ({"center": "linear"}, {}),
    "classes": (CLASSES, {}),
    "grades": ({**CLASSES, "missing_label": "low"}, {}),
}
"""By mechanism file: parameters of the fit, and columns that it is given."""


@pytest.fixture(scope="module", autouse=True)
def fitted(folder: Path, invoke: Any, secret: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Writes mechanism files: of `FITTED` for labels in memory, two that are solved for their priors, two of none."""
    log, ledger = log_table(), tmp_path_factory.mktemp("fitted") / "ledger"
    for name, (more, given) in FITTED.items():
        parameters: dict[str, Any] = {**NUMBERS, "label": "y", "mechanism": "rr", "noise_key": secret, "ledger": ledger}
        parameters |= more
        features: dict[str, Any] = {"features": log.select(["x", "word"])} if "center" in more else {}
        columns = {argument: log[column] for argument, column in given.items()}
        made = LabelPrivatizer(**parameters).fit(log[parameters["label"]], **features, **columns)
        made.write_mechanism(folder / f"{name}.json")
    for name in ("m", "missing"):
        files = f"--prior={folder}/{name}.json", f"--output={folder}/solved_{name}.json"
        invoke(["solve", *files, "--epsilon=1", "--mechanism=rr"]).ok()
    prior = Prior(np.arange(5.0), np.full(5, 0.2))
    priors: dict[str, Any] = {"rr": {}, "gaussian": {"delta": 1e-6}}
    for name, delta in priors.items():
        file = MechanismFile(Table(solve(name, prior, 1.0, **delta), prior=prior))
        (folder / f"{name}.json").write_text(file.to_text())


@pytest.mark.parametrize(("field", "value", "said", "more"), CASES)
def test_it_is_refused(field: str, value: Any, said: str, more: dict[str, Any], refusal: Any) -> None:
    for part, module in NEEDS.items():
        given = any(part in each for each in (value, *more.values()) if isinstance(each, str))
        if given and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    assert (f"--{flag_name(field)}{said}" if said[0] in " :" else said) in refusal(**{**more, field: value})


def test_every_field_has_a_wrong_value() -> None:
    assert REFUSED.keys() == declared(Fields).keys()


@pytest.mark.parametrize("fields", ACCEPTED, ids=str)
def test_others_are_not(fields: dict[str, Any], release_of: Any, looking_once: Any) -> None:
    assert looking_once(lambda: release_of(**fields)).labels


def test_a_mechanism_file_settles_domain_mechanism_and_budget(release_of: Any) -> None:
    found = release_of("apply")
    (label,) = found.labels
    fitted = label.mechanism.fitted
    assert label.column.domain == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert (label.mechanism.name, label.budget.prior_epsilon) == ("rr", None)
    assert found.budget.epsilon == fitted.randomizer.epsilon < fitted.drawing.budget.total <= 1


@pytest.mark.parametrize("field", declared(Fields))
def test_no_field_takes_any_object_or_any_choice(field: str) -> None:
    with pytest.raises(FieldError, match=rf"^--{flag_name(field)} must be "):
        Fields.of({"label": "y", field: object()})
    choices = declared(Fields)[field].metadata["choices"]
    # Mechanisms are looked up, and so are losses and roundings: rows above.
    if choices and field not in ("mechanism", "loss", "rounding"):
        with pytest.raises(FieldError, match=f"^--{flag_name(field)}: unknown value 'x'; known: {', '.join(choices)}$"):
            Fields.of({"label": "y", field: "x"})


NO_EPSILON, NO_GAP, NO_CHOICE = "mechanism.prior.epsilon is not", "mechanism.gap is not", "mechanism.choice"
CHANGES: list[tuple[str, Any, str]] = [
    ("m", {"rounding": "upwards"}, "mechanism.rounding is not one of nearest, randomized"),
    ("m", {"labels.0": -1.0}, "cannot be used: "),
    # With a named prior of epsilon 0, the ledger would be charged for the labels alone.
    ("m", {"prior.epsilon": 0.0}, "the prior's epsilon is 0, but it names a release, which cost more"),
    *(("m", {"prior.epsilon": epsilon}, NO_EPSILON) for epsilon in (-0.9, np.inf, np.nan, True, "0.5", 10**400)),
    ("m", {"prior.epsilon": None}, NO_EPSILON),
    (
        "m",
        {"mechanism": "rr\ncertified  epsilon 0"},
        "mechanism.mechanism does not have the form ^[A-Za-z0-9_.+-]{1,64}$",
    ),
    ("m", {"mechanism": 3}, "mechanism.mechanism is not string"),
    *(("m", {"gap": gap}, NO_GAP) for gap in (-1.0, True, "<b>")),
    ("m", {"choice": "unbiased"}, NO_CHOICE),
    ("m", {"choice": {"mechanism": "a\nb", "model_errors": {}}}, NO_CHOICE),
    ("m", {"choice": {"mechanism": "unbiased", "model_errors": {"unbiased": -1}}}, NO_CHOICE),
    (
        "classes",
        lambda stated: stated["classes"]["values"].append("c"),
        "outputs are not the places of its classes",
    ),
    ("classes", {"outputs": [0.0, 1.5]}, "cannot be used: "),
    ("column", {"center.counts.0": 10**6}, "its prior is not that of its center's counts"),
    ("column", {"center.more": 1}, "mechanism.center has a member 'more'"),
    ("column", {"center.column": 3}, "mechanism.center.column is not string"),
    ("column", {"center.domain": [0, 1]}, "mechanism.center.domain is not number"),
    ("column", {"center.domain": [0.0, 1.0, 9.0]}, "evenly spaced"),
    ("column", {"center.counts": [0.5]}, "mechanism.center.counts is not integer"),
    ("column", {"center.counts": [5, 5, 5]}, "not one count for each cell"),
    ("column", {"prior.epsilon": 0.0, "prior.release": ...}, "its prior has no epsilon"),
]


@pytest.mark.parametrize(("name", "change", "said"), CHANGES)
def test_a_mechanism_file_that_was_changed(
    name: str, change: Any, said: str, folder: Path, refusal: Any, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    document = json.loads((folder / f"{name}.json").read_text())
    change_members(document, change)
    path.write_text(json.dumps(document))
    message = refusal("apply", label="grade" if name == "classes" else "y", mechanism_file=path)
    assert message.startswith(f"--mechanism_file {path} cannot be used: ")
    assert said in message
    if change == {"prior.epsilon": 0.0}:
        with pytest.raises(ValueError, match="which cost more"):
            read_prior(str(path))


# On the command line.


@pytest.mark.parametrize(
    ("command", "flags", "said"),
    [
        ("privatize", {"epsilon": 31}, "--epsilon must be between 1e-09 and 30, not 31"),
        ("fit", {"label": "g"}, "--label: there is no column 'g' in "),
        ("apply", {"mechanism_file": "/nowhere"}, "--mechanism_file /nowhere cannot be read: "),
    ],
)
def test_the_message_reaches_the_user(
    job: Any, invoke: Any, outputs: Path, command: str, flags: dict[str, Any], said: str
) -> None:
    outcome = invoke(job(command, **flags))
    assert (outcome.code, outcome.out, [*outputs.iterdir()]) == (2, "", [])
    assert outcome.error.startswith(f"labeldp {command}: error: {said}")


@pytest.mark.parametrize("command", COMMANDS)
def test_flags_that_are_missing_or_of_another_command_are_named(command: str, job: Any, invoke: Any) -> None:
    parser = command_parser(command)
    for name in parser.needed:
        outcome = invoke(job(command, **{name: None}))
        assert (outcome.code, outcome.out) == (2, "")
        assert f"--{name} is missing: " in outcome.error
    for name in {*map(flag_name, declared(Fields))} - {*parser.flags()}:
        outcome = invoke(job(command, **{name: "1"}))
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.error.startswith(f"labeldp {command}: error: {parser.hints[name]}")
        assert f"--{name} is " in outcome.error
