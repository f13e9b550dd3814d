"""The product speaks the field's language: no name of the early dialect is left, sentences begin with their subject.

The pages of the documentation are held to the same rules as comments.

``DIALECT`` and ``DIALECT_MODULES`` list every name that a review of the code found unreadable, with the term that took
its place. A definition (class, function, method, field, type alias, module, package) of that name fails here, wherever
it stands; a name that is right in one place has its reason in ``EXCEPTIONS``. Leading underscores make no difference,
and attributes that are set, parameters, locals and nested functions count too, but in ``NAMES_LEFT_ALONE``.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.source_trees import no_collection, source_nodes, source_tree

ROOT = Path(__file__).parents[2]
PRODUCT = ("app", "backend", "spark", "migrations")

# The name of a class, function, method or field that is gone → the field's term.
DIALECT = {
    # Transport and requests
    "NeighbourNetwork": "InProcessNetwork",
    "NeighbourConnection": "LoopbackConnection",
    "_Door": "listener of the in-process network",
    "near": "local",
    "far": "peer",
    "hand": "send_message",
    "_hand_up": "deliver",
    "_pass_on": "deliver",
    "Handed": "local message",
    "HandedRequest": "LocalFetchRequest",
    "HandedAnswer": "LocalFetchResponse",
    "PromptFuture": "EagerFuture",
    "tell": "callback, notify",
    "_told": "callbacks",
    "LastingFuture": "ShieldedFuture",
    "plain": "fast path",
    "PlainWay": "fast path",
    "_serves_plainly": "fast path",
    "Asked": "FetchTarget, PartitionRequest",
    "Wanted": "PartitionRequest",
    "found": "results",
    "SaidSubscription": "MemberSubscription",
    "read_to_send": "read_file_range",
    "after": "advance (FileRange)",
    "gone": "closed",
    "_on_gone": "on_close",
    "held": "paused",
    "let_go": "resume",
    # Replica
    "FollowerSession": "FetchSessionHandler",
    "Turn": "FetchRequestData, GroupUpdate",
    "LeaderReplicas": "RemoteReplicas",
    "Row": "FetchPartitionResult, the row's name",
    "Host": "PartitionContext",
    "FollowerHost": "PartitionContext",
    "poke": "try_complete",
    "settle": "complete",
    "settle_waiting": "complete_delayed_requests",
    "knows_less": "hw_outdated",
    "tell_soon": "schedule_hw_update",
    "has_news": "on_partition_change",
    "let_rest": "park_idle",
    "disturb": "unpark",
    "quiet": "idle",
    "was_at_end": "mark_caught_up",
    "is_held_back": "is_throttled",
    "nearer_replica": "preferred_read_replica",
    "TierPlans": "AuxStateBuilds",
    "forget_remote": "reset_remote_state",
    # Controller, Raft, coordinator
    "Chores": "PeriodicTasks",
    "Introduction": "ControllerRegistrationManager",
    "merged": "interned",
    "Moment": "Now",
    "TellLeader": "SendBeginQuorumEpoch",
    "TellEnd": "SendEndQuorumEpoch",
    "held_up": "postpone_timeouts",
    "learned": "observe_epoch",
    "learn": "observe_epoch",
    "_Turn": "group update",
    "Question": "VerificationRequest",
    "doomed": "pending delete",
    # Remote
    "Known": "RemoteSegmentIndex, CachedResult",
    "Piece": "Span",
    "usual": "canonical",
    "unusual": "not canonical",
    "FramedRecords": "record runs",
    "Framed": "ColumnBatch",
    "Columns": "ColumnBatch",
    # Control, store, Spark, app, start
    "Sight": "FindingContext, ClusterSnapshot",
    "hold_ms": "for_ms",
    "Taking": "claim",
    "take": "claim, acquire",
    "Lasting": "LongRunningOperation",
    "LastingKind": "LongRunningOperation",
    "Course": "ExecutionControl",
    "Site": "OperationContext",
    "Wish": "Command",
    "Words": "DialogTexts",
    "misfit": "describe_invalid",
    "Pace": "SamplingInterval",
    "Unchanged": "round cache",
    "look_again": "refresh",
    "stays_in_sync": "unchanged_phase",
    "Machine": "FaultTarget",
    "BreakableCluster": "fault injector",
    "break_it": "inject",
    "heal": "clear",
    "Trouble": "Fault",
    "Followed": "applied",
    "follow": "apply",
    "standing": "current state",
    "Answer": "CachedResult",
    "told": "when told",
    "sentence": "describe_error",
    "look": "read, inspect",
    "draw": "render",
    "plain_lives": "complete life cycles",
    "Lives": "columnar fold",
    # Everywhere
    "cut": "truncate",
    "note_cut": "truncation",
    "doomed_folders": "pending_delete_folders",
    "chance": "randomness",
    "answer": "response, result",
    "answers": "responses, results, listed_offsets",
    "runs": "running, executable",
    "Person": "User",
    "words": "text, label; describe_error",
    "levels": "feature_levels, by_source",
    "recall": "restore",
    "turn": "order, lock, waiter",
    "judged": "verdicts",
    "question": "request, query, filters",
    "trouble": "fault, diagnosis",
    "StoreTrouble": "StoreDiagnosis",
    "look_after": "enqueue",
    "keep_isr": "freeze_isr",
    "keeps_isr": "isr_frozen",
    "tells_liveness": "reports_liveness",
    "nobody": "leaderless, the thing that is missing",
    "said": "text, result, subscription, report_progress",
    "say": "report, log_reason",
    "say_goodbye": "shut_down",
    "spoken": "screen_reader_text, supported protocols",
    "speaks": "supports_protocol",
    "newcomer": "new_member_added",
    "setback": "failure",
    "give_back": "release",
    "goes_on": "continues",
    "heard": "leader_contacted, broker_contacted",
    "leader_heard": "leader_contacted",
    "voter_heard": "voter_contacted",
}
# A private name, attribute, parameter or local that is gone → the name of its thing.
DIALECT_LOCALS = {
    "one": "the element's name: partition, broker, …",
    "known": "the set's name: brokers, resources, …",
    "told": "response, sample, …",
    "wanted": "the request's or the setting's name",
    "asked": "requested, selection",
    "looks": "settings, results",
    "looked": "read, checked",
    "sight": "context, observation",
    "recalled": "restored",
    "pace": "sampling interval",
    "taking": "claim",
    "course": "execution control",
    "machine": "fault target",
    "stays_in_sync": "unchanged_phase",
    "is_usual": "is_expected, is_canonical",
    "stage": "context",
    "mine": "the thing's name: reads, parameters, …",
    "theirs": "the thing's name: live_offsets, …",
    "ours": "the thing's name",
    "alone": "only_replica, only_voter",
}
# Names of DIALECT that are plain English for a value: allowed as attribute, parameter and local, not as a definition.
PLAIN_AS_VALUE = {"after", "far", "gone", "held", "merged", "near", "sentence"}
# Where private names, attributes, parameters and locals are not held: path below the root → why.
NAMES_LEFT_ALONE: dict[str, str] = {
    "spark/sinks/lives.py": "a later change replaces it, with its names",
}
# A module or package that is gone → what it is called, or what its subject is called.
DIALECT_MODULES = {
    "neighbour_network": "in-process network",
    "handed": "local message",
    "plain_produce": "produce_fast_path",
    "follower_session": "fetch_session_handler",
    "leader_replicas": "remote replicas",
    "tier_plans": "aux state builds",
    "chores": "periodic_tasks",
    "introduction": "controller_registration_manager",
    "bulk": "record interning (the controller's module)",
    "group_turn": "rebalance",
    "consumer_group_turn": "group update",
    "removed_topics": "topic deletion",
    "known_segments": "remote_segment_index",
    "metadata_runs": "record runs",
    "remote_log_by_table": "generated decoder",
    "rlmm_applied": "read-your-writes barrier",
    "sight": "context, snapshot",
    "taking": "claim",
    "lasting": "long_running",
    "steering": "controls",
    "words": "formatting",
    "levels": "config precedence",
    "recall": "restore",
    "pace": "sampling interval",
    "machine": "fault target",
    "breakable_cluster": "fault injector",
    "turn": "writer lock",
    "known": "query_cache",
    "acting": "control client",
    "person": "identity",
    "one_press": "debounce",
    "health_words": "health text",
    "flag_matrix": "config matrix",
    "then_and_now": "comparison",
    "head": "page header",
    "attention": "alerts",
    "start": "bootstrap",
    "warm": "pre-start",
    "child_settings": "child environment",
    "interpreter": "GC tuning",
    "refusals": "start errors",
    "lives": "complete life cycles",
    "chunk": "prepared batch",
    "packed": "Arrow batches",
    "staged": "COPY staging",
    "life": "liveness",
    "direct": "in-process run",
}
# A name that is right where it stands: (name, path below the root) → why.
_SENTENCE = "the headline of a finding: its column, and a key of the API's JSON"
_SENTENCE_OF_PLAN = "a plan's check, step or verification in one sentence: a key of the plan's JSON"
_SENTENCE_FIELD = "a field that holds one sentence for people"
_REPLACED = "a later change replaces it, with its names"
_FOLD = "part of the fold by columns (`lives`), which a later change replaces"
_FOLLOW = "the option `--follow`, as of `tail`"
_TOKENS = "tokens are taken from a bucket: the algorithm's verb"
_VOTER = "whether a voter is a member or has to catch up first: `VoterStanding`"
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("sentence", "app/components/cluster/health_text.py"): _SENTENCE_FIELD,
    ("sentence", "app/components/config/config_table.py"): _SENTENCE_FIELD,
    ("sentence", "app/state.py"): _SENTENCE_FIELD,
    ("sentence", "backend/control/alerts/notices.py"): _SENTENCE,
    ("sentence", "backend/control/findings/finding_context.py"): _SENTENCE,
    ("sentence", "backend/control/operations/lifecycle/plan_draft.py"): _SENTENCE_OF_PLAN,
    ("sentence", "backend/control/operations/operation_kind.py"): _SENTENCE_OF_PLAN,
    ("sentence", "backend/store/queries/findings.py"): _SENTENCE,
    ("sentence", "backend/store/queries/overview.py"): _SENTENCE,
    ("sentence", "backend/store/backups/restoring.py"): _SENTENCE_FIELD,
    (
        "sentence",
        "backend/store/connection/database_faults.py",
    ): "a property: fault and remedy as one sentence for people",
    ("sentence", "backend/supervisor/checks/store_check.py"): _SENTENCE_FIELD,
    ("follow", "backend/cli/remote/remote_commands.py"): _FOLLOW,
    ("follow", "backend/cli/remote/topic_tools.py"): _FOLLOW,
    ("words", "backend/control/operations/lifecycle/plan_draft.py"): "a key of the plan's JSON: `diff.words`",
    ("take", "backend/control/http/guard.py"): _TOKENS,
    ("take", "backend/engine/common/rates.py"): _TOKENS,
    ("answers", "backend/control/http/api_models.py"): "a key of the API's JSON: whether the cluster answers",
    ("told", "backend/control/lab/faults/scenarios.py"): "a key of the API's JSON: `run.told`",
    ("after", "backend/control/operations/lifecycle/plan_draft.py"): "a setting before and after a change; JSON keys",
    ("standing", "backend/engine/raft/quorum_state.py"): _VOTER,
    ("standing", "backend/engine/raft/raft_state.py"): _VOTER,
    ("direct", "spark/direct.py"): _REPLACED,
    ("packed", "spark/packed.py"): _REPLACED,
    ("bulk", "spark/sinks/bulk.py"): "bulk insert: the term of databases; the dialect's `bulk` interned records",
    ("chunk", "spark/sinks/chunk.py"): _FOLD,
    ("follow", "spark/sinks/chunk.py"): _FOLD,
    ("Followed", "spark/sinks/chunk.py"): _FOLD,
    ("lives", "spark/sinks/lives.py"): _REPLACED,
    ("Row", "spark/sinks/lives.py"): _REPLACED,
    ("Lives", "spark/sinks/lives.py"): _REPLACED,
    ("plain_lives", "spark/sinks/lives.py"): _REPLACED,
    ("staged", "spark/sinks/staged.py"): _REPLACED,
}

# A comment or docstring that begins so has a relative clause where its subject belongs.
_RELATIVE_CLAUSE = re.compile(r"^\W*(What|Which|Who|Whoever|Whatever|Those (who|that|of)|Whose)\b(?![^.]*\?)")
_DIALECT_WORDS = re.compile(
    r"\b(anew|of (its|their) own|lets? rest|Facts:|told|troubles?|without news|the news|chance"
    r"|(an?|each|every|last|next|one|per|the|two) looks?(?! up|-up| at every| for))(?!\w)",
    re.I,
)
# A text for people that is so is no plain English.
_DIALECT_IN_STRINGS = re.compile(r"\b(anew|of (its|their) own)\b")
# Pages: README, CONTRIBUTING, docs, architecture, decisions.
PAGES = ("*.md", "backend/*.md", "backend/decisions/**/*.md", "docs/**/*.md")
_DIALECT_OF_PAGES = re.compile(
    r"\b(anew|of (its|their|our|one's) own|lets? rest|told|whoever|neighbours?|news|doomed)\b", re.I
)
_CODE = re.compile(r"`([^`]+)`")
_SENTENCE_END = re.compile(r"(?<=[.!?;:])\s+(?=[A-Z`*])")


class Definition(NamedTuple):
    name: str
    path: str
    line: int
    is_value: bool = False
    """An attribute, a parameter or a local."""

    @property
    def term(self) -> str | None:
        """The term that took the name's place, None where the name was never of the dialect."""
        if self.line == 0:
            return DIALECT_MODULES.get(self.name)
        if self.path.startswith(tuple(NAMES_LEFT_ALONE)):
            return DIALECT.get(self.name)
        name = self.name.strip("_")
        if self.is_value and name in PLAIN_AS_VALUE:
            return None
        private = DIALECT_LOCALS.get(name) if self.is_value or self.name.startswith("_") else None
        return DIALECT.get(self.name) or DIALECT.get(name) or private


class Text(NamedTuple):
    path: str
    line: int
    text: str


class Source(NamedTuple):
    """One module of the product, as far as it is held here."""

    path: str
    classes: tuple[str, ...]
    """Public classes of the module."""
    definitions: tuple[Definition, ...]
    texts: tuple[Text, ...]
    dialect_strings: tuple[Text, ...]
    """String literals with a word of the dialect."""


_DEFINING = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _defined(node: ast.stmt) -> Iterator[tuple[str, int]]:
    """Names that a module or a class defines, with their lines."""
    if isinstance(node, _DEFINING):
        yield node.name, node.lineno
    if isinstance(node, ast.ClassDef):
        for part in node.body:
            yield from _defined(part)
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.lineno
    if isinstance(node, ast.Assign):
        yield from ((target.id, node.lineno) for target in node.targets if isinstance(target, ast.Name))


def _nested(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, int, bool]]:
    """(name, line, whether it is a value) of nested definitions, attributes that are set, parameters and locals."""
    for node in nodes:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                yield node.id, node.lineno, True
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                yield node.attr, node.lineno, True
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno, True
        elif isinstance(node, _DEFINING):
            yield node.name, node.lineno, False


def _is_command(node: ast.AST) -> bool:
    """Whether the docstring of a function is the help of a command, which is written as an answer to a question."""
    decorators = [ast.unparse(decorator) for decorator in getattr(node, "decorator_list", [])]
    return any(decorator == "with_options" or ".command(" in decorator for decorator in decorators)


# From the left: a sign of a comment within a literal belongs to the literal, a quote within a comment to the comment.
_COMMENT_OR_LITERAL = re.compile(
    r"""#[^\n]*|"{3}(?:[^\\]|\\.)*?"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'""", re.S
)


def _comments(code: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every comment."""
    line, at = 1, 0
    for match in _COMMENT_OR_LITERAL.finditer(code):
        if code[match.start()] == "#":
            line += code.count("\n", at, match.start())
            at = match.start()
            yield line, match[0]


def _texts_of(path: str, code: str, nodes: Iterable[ast.AST]) -> Iterator[Text]:
    """Docstrings but those of commands; comments as their first line (a comment that follows another continues it)."""
    for node in nodes:
        if isinstance(node, (ast.Module, *_DEFINING)):
            docstring = ast.get_docstring(node)
            if docstring and not _is_command(node):
                yield Text(path, getattr(node, "lineno", 1), docstring)
    block: Text | None = None
    before = -1
    for line, comment in _comments(code):
        if block is not None and line == before + 1:
            block = block._replace(text=f"{block.text} {comment[1:].strip()}")
        else:
            if block is not None:
                yield block
            block = Text(path, line, comment.lstrip("#: "))
        before = line
    if block is not None:
        yield block


@cache
@no_collection()
def _sources() -> tuple[Source, ...]:
    """Each module is walked once."""
    sources = []
    for file in (file for top in PRODUCT for file in sorted((ROOT / top).rglob("*.py"))):
        path = str(file.relative_to(ROOT))
        tree = source_tree(file)
        nodes = source_nodes(file)
        definitions = [Definition(file.parent.name if file.name == "__init__.py" else file.stem, path, 0)]
        definitions += [Definition(name, path, line) for node in tree.body for name, line in _defined(node)]
        if not path.startswith(tuple(NAMES_LEFT_ALONE)):
            definitions += [Definition(name, path, line, is_value) for name, line, is_value in _nested(nodes)]
        classes = (node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
        texts = tuple(_texts_of(path, file.read_text(), nodes))
        strings = (
            Text(path, node.lineno, node.value)
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DIALECT_IN_STRINGS.search(node.value)
        )
        sources.append(Source(path, tuple(classes), tuple(definitions), texts, tuple(strings)))
    return tuple(sources)


def _definitions() -> Iterator[Definition]:
    return (definition for source in _sources() for definition in source.definitions)


def _texts() -> Iterator[Text]:
    return (text for source in _sources() for text in source.texts)


def _sentences() -> Iterator[tuple[Text, str]]:
    """Each sentence of docstrings and comments, as those of pages."""
    return ((text, sentence) for text in _texts() for sentence in _SENTENCE_END.split(" ".join(text.text.split())))


def test_no_name_of_the_dialect_is_defined() -> None:
    left = {
        f"{item.path}:{item.line}: {item.name} ({item.term})"
        for item in _definitions()
        if item.term and (item.name, item.path) not in EXCEPTIONS
    }
    assert not left, "\n".join(sorted(left))


def test_each_exception_is_needed() -> None:
    defined = {(item.name, item.path) for item in _definitions() if item.term}
    assert not EXCEPTIONS.keys() - defined


# Two classes of one name where both sides of a wire speak of the same thing, or a docstring says what each is not.
SAME_NAME: dict[str, str] = {
    "ConfigSynonym": "DescribeConfigs: as the broker answers, and as the control plane reads it",
    "SegmentRow": "the ledger's rows: as the pipeline writes them, and as queries read them (see both docstrings)",
}


def test_a_public_class_has_a_name_that_no_other_has() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for source in _sources():
        for name in source.classes:
            places[name].append(source.path)
    double = {name: paths for name, paths in places.items() if len(paths) > 1 and name not in SAME_NAME}
    assert not double
    assert not [name for name in SAME_NAME if len(places[name]) < 2]


@pytest.mark.parametrize("what", ["relative clause", "dialect"])
def test_a_comment_begins_with_its_subject(what: str) -> None:
    pattern = _RELATIVE_CLAUSE if what == "relative clause" else _DIALECT_WORDS
    search = pattern.match if what == "relative clause" else pattern.search
    left = [f"{text.path}:{text.line}: {sentence[:100]}" for text, sentence in _sentences() if search(sentence)]
    assert not left, "\n".join(left)


def test_a_text_for_people_has_no_word_of_the_dialect() -> None:
    left = [f"{text.path}:{text.line}: {text.text[:100]}" for source in _sources() for text in source.dialect_strings]
    assert not left, "\n".join(left)


@cache
def _pages() -> tuple[Text, ...]:
    """The sentences of every page, and each cell of its tables; no headings, blocks of commands or comments."""
    sentences = []
    for page in sorted({path for pattern in PAGES for path in ROOT.glob(pattern)}):
        path = str(page.relative_to(ROOT))
        text = re.sub(
            r"^```.*?^```|<!--.*?-->", lambda part: "\n" * part[0].count("\n"), page.read_text(), flags=re.M | re.S
        )
        text = re.sub(r"^#.*$", "", text, flags=re.M)
        for part in re.finditer(
            r"(?:^ *(?:[-*]|\d+\.) |^\|)?(?:.+\n?)+?(?=\n|\Z|^ *(?:[-*]|\d+\.) |^\|)", text, flags=re.M
        ):
            line = text.count("\n", 0, part.start()) + 1
            pieces = part[0].strip("|\n").split(" | ") if part[0].startswith("|") else [part[0]]
            for piece in pieces:
                flat = re.sub(r"^(?:[-*]|\d+\.) ", "", " ".join(piece.split()))
                sentences += [Text(path, line, sentence) for sentence in _SENTENCE_END.split(flat)]
    return tuple(sentences)


def test_a_sentence_of_a_page_begins_with_its_subject() -> None:
    assert len(_pages()) > 3000
    left = [f"{text.path}:{text.line}: {text.text[:100]}" for text in _pages() if _RELATIVE_CLAUSE.match(text.text)]
    assert not left, "\n".join(left)


def test_a_page_has_no_word_of_the_dialect() -> None:
    used = {name for name, _ in EXCEPTIONS}
    gone = {name for name in DIALECT if name[:1].isupper() or "_" in name} - used
    left = []
    for text in _pages():
        words = _DIALECT_OF_PAGES.search(_CODE.sub("", text.text))
        names = {name for code in _CODE.findall(text.text) for name in re.findall(r"\w+", code)} & gone
        if words or names:
            left.append(f"{text.path}:{text.line}: {words[0] if words else names}: {text.text[:100]}")
    assert not left, "\n".join(left)
