"""The page in a real browser against a real service: what a person does at night, and whether it took effect."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.browsing import Desk, Visitor, at_once, faults
from tests.serving import until

HERE = "/targets/inference/deployment/"


def unfold(page: Page, form: str) -> Any:
    """The form, with its fold open."""
    found = page.locator(f"#form-{form}")
    if not found.is_visible():
        page.locator("details", has=found).locator("summary").click()
    return found


class TestSigningIn:
    def test_by_token_and_back_to_what_was_asked_for(self, visit: Visitor) -> None:
        """A wrong token is refused in words; a right one leaves a cookie that no script can read."""
        page = visit.open(HERE + "plain", role="")
        page.get_by_label("Token").fill("guess")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_have_text("This token is not known.")
        # A browser notes every 401 on its console, and this one is meant.
        assert [each for each in visit.complaints if "401" in each] == visit.complaints
        visit.complaints.clear()
        page.get_by_label("Token").fill("operator")
        page.get_by_role("button", name="Sign in").click()
        expect(page).to_have_url(visit.url + HERE + "plain")
        [cookie] = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (True, "Strict", "/")
        assert "operator" not in cookie["value"]

    def test_signing_out_ends_it(self, visit: Visitor) -> None:
        """The page asks for a token again."""
        page = visit.open()
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto(visit.url + "/")
        expect(page.get_by_label("Token")).to_be_visible()

    def test_a_viewer_reads_and_has_no_forms(self, visit: Visitor) -> None:
        """What could only be refused is not offered."""
        page = visit.open(HERE + "plain", role="viewer")
        expect(page.get_by_role("heading", name="plain")).to_be_visible()
        assert page.locator("main form").count() == 0


class TestForms:
    def test_pin(self, visit: Visitor, desk: Desk) -> None:
        """The workload is scaled, and the page shows it without being loaded again."""
        page = visit.open(HERE + "pinned")
        form = unfold(page, "pin")
        form.get_by_label("At how many replicas").fill("4")
        form.get_by_label("Why").fill("keynote")
        form.get_by_role("button").click()
        expect(page.get_by_role("status").filter(has_text="Pin at 4 of")).to_be_visible()
        page.evaluate("window.kept = true")
        until(lambda: desk.scales("pinned") == [4], what="one write to 4")
        until(lambda: desk.target("pinned")["reason"] == "Pinned")
        at_once(page)
        expect(page.locator("#glance")).to_contain_text("Pinned")
        expect(page.locator("#glance .count")).to_contain_text("4")
        expect(page.locator("#overrides")).to_contain_text("Pin at 4")
        expect(page.locator("#overrides")).to_contain_text("keynote")
        expect(page.locator("#overrides")).to_contain_text(re.compile(r"(5\d min|1 h) left"))
        assert page.evaluate("window.kept")

    def test_a_pin_out_of_bounds_is_refused_in_words_and_nothing_typed_is_lost(self, visit: Visitor) -> None:
        """Until it is forced."""
        page = visit.open(HERE + "bounded")
        form = unfold(page, "pin")
        form.get_by_label("At how many replicas").fill("9")
        form.get_by_label("Why").fill("more than the policy allows")
        form.get_by_label("For how long").select_option("7200")
        form.get_by_role("button").click()
        expect(page.get_by_role("alert")).to_contain_text("outside of minReplicas 1 and maxReplicas 8")
        visit.complaints.clear()  # the browser's own note of the 422
        form = unfold(page, "pin")
        expect(form.get_by_label("At how many replicas")).to_have_value("9")
        expect(form.get_by_label("Why")).to_have_value("more than the policy allows")
        expect(form.get_by_label("For how long")).to_have_value("7200")
        form.get_by_label("also outside").check()
        form.get_by_role("button").click()
        expect(page.locator("#overrides")).to_contain_text("Pin at 9 (forced)")

    def test_pause_and_end(self, visit: Visitor, desk: Desk) -> None:
        """Paused, a firing alert does nothing; ended, it does."""
        page = visit.open(HERE + "paused")
        form = unfold(page, "pause")
        form.get_by_label("What").select_option("pauseScaleUp")
        form.get_by_label("Why").fill("load test")
        form.get_by_label("Who").fill("ana")
        form.get_by_role("button").click()
        expect(page.locator("#overrides")).to_contain_text("Pause scale-up")
        expect(page.locator("#overrides")).to_contain_text("ana")
        desk.fire("six", "paused")
        until(lambda: desk.target("paused")["reason"] == "Paused")
        assert desk.scales("paused") == []
        page.get_by_role("button", name="End now").click()
        expect(page.get_by_role("status").filter(has_text="has ended")).to_be_visible()
        expect(page.locator("#overrides")).to_contain_text("No override is in force.")
        until(lambda: desk.scales("paused") == [6])
        [line, *_] = desk.call("GET", "/api/v1/audit?limit=1")["audit"]
        assert (line["action"], line["who"]) == ("override.expire", "operator")

    def test_bounds(self, visit: Visitor, desk: Desk) -> None:
        """The numbers in force are those that are shown."""
        page = visit.open(HERE + "charted")
        form = unfold(page, "bounds")
        form.get_by_label("minReplicas").fill("1")
        form.get_by_label("maxReplicas").fill("3")
        form.get_by_label("Why").fill("budget")
        form.get_by_role("button").click()
        expect(page.locator("#glance")).to_contain_text("1–3 allowed")
        desk.fire("six", "charted")
        until(lambda: desk.scales("charted") == [3])

    def test_silence_an_alert_from_its_line(self, visit: Visitor, desk: Desk) -> None:
        """The form is filled with what the alert is known by."""
        page = visit.open(HERE + "silenced")
        page.locator("#alerts").get_by_role("link", name="Silence…").click()
        form = page.locator("#form-silence")
        matchers = 'alertname="Alert-stay"\nnamespace="inference"\nworkload="silenced"'
        expect(form.get_by_label("Which alerts")).to_have_value(matchers)
        form.get_by_label("Why").fill("known, ticket 12")
        form.get_by_role("button").click()
        expect(page.locator("#silences")).to_contain_text("known, ticket 12")
        [silence] = desk.call("GET", "/api/v2/silences")
        assert [each["value"] for each in silence["matchers"]] == ["Alert-stay", "inference", "silenced"]
        page.locator("#silences").get_by_role("button", name="End now").click()
        expect(page.locator("#silences")).to_contain_text("No alert is silenced.")
        assert desk.call("GET", "/api/v2/silences")[0]["status"]["state"] == "expired"

    def test_freeze_many_shows_in_the_banner_until_it_ends(self, visit: Visitor, desk: Desk) -> None:
        """And what is frozen is not scaled."""
        page = visit.open()
        page.get_by_role("link", name="Freeze…").click()
        form = page.locator("#form-many")
        form.get_by_label("Which targets").fill('name="frozen"')
        form.get_by_label("Why").fill("incident 7")
        form.get_by_role("button").click()
        expect(page.locator("#notices")).to_contain_text('Frozen. name="frozen", by operator: incident 7')
        desk.fire("six", "frozen")
        until(lambda: desk.target("frozen")["reason"] == "Frozen")
        assert desk.scales("frozen") == []
        page.get_by_role("button", name="End now: Freeze").click()
        expect(page.locator("#notices")).not_to_contain_text("Frozen")
        until(lambda: desk.scales("frozen") == [6])

    def test_a_reason_is_required(self, visit: Visitor, desk: Desk) -> None:
        """The browser does not send the form without one, and the service would not take it."""
        page = visit.open(HERE + "plain")
        form = unfold(page, "pause")
        form.get_by_role("button").click()
        assert form.get_by_label("Why").evaluate("field => field.validity.valueMissing")
        form.get_by_label("Why").evaluate("field => field.required = false")
        form.get_by_role("button").click()
        expect(page.get_by_role("alert")).to_contain_text("Comment is missing")
        visit.complaints.clear()
        assert desk.target("plain")["overrides"] == []


class TestLive:
    def test_news_come_by_themselves_and_disturb_nothing(self, visit: Visitor, desk: Desk) -> None:
        """What is typed and where the focus is stay; a screen reader is told what became of it."""
        page = visit.open()
        page.evaluate("window.kept = true")
        unfold(page, "many").get_by_label("Why").fill("half a sentence")
        row = page.locator("#list tr", has_text="vllm")
        row.get_by_role("link").focus()
        desk.fire("nine", "vllm")
        until(lambda: desk.target("vllm")["replicas"] == 8)
        expect(row.locator(".count")).to_have_text("8")
        assert row.get_by_role("link").evaluate("link => link === document.activeElement")
        expect(page.locator("#form-many").get_by_label("Why")).to_have_value("half a sentence")
        # No GPU is free for all of them, so that soon it is not only up but also waits.
        expect(page.locator("#news")).to_contain_text(re.compile("vllm is (up|limited)"))
        assert page.evaluate("window.kept")

    def test_nothing_new_is_asked_for_by_tag(self, visit: Visitor) -> None:
        """Asked again, the answer is a 304 without a body, unless the chart's minute has just passed."""
        page = visit.open(HERE + "plain")
        statuses = []
        for _ in range(3):
            with page.expect_response(lambda answer: answer.request.headers.get("x-live") == "1") as answer:
                at_once(page)
            statuses.append(answer.value.status)
        assert 304 in statuses[1:]

    def test_a_count_tells_its_age_once_it_is_old(self, visit: Visitor, desk: Desk) -> None:
        """Without being asked for again, and without a word while it is new."""
        desk.cluster.store.delete("deployments.apps", "inference", "leaving")
        until(lambda: desk.target("leaving")["countedAt"], what="it is seen to be gone")
        page = visit.open()
        page.clock.install()
        page.reload()
        expect(page.locator("#list .counted")).to_have_count(1)
        counted = page.locator("#list tr", has_text="leaving").locator(".counted")
        expect(counted).to_be_hidden()
        page.clock.run_for(150_000)
        expect(counted).to_be_visible()
        expect(counted).to_have_text(re.compile(r"^counted \d+ min( \d+ s)? ago$"))

    def test_it_says_when_it_is_out_of_date_and_recovers(self, visit: Visitor) -> None:
        """While the service does not answer, it is asked less often."""
        page = visit.open()
        page.context.set_offline(True)
        at_once(page)
        expect(page.locator("#live")).to_contain_text("Not up to date")
        page.context.set_offline(False)
        at_once(page)
        expect(page.locator("#live")).to_have_text("Live")
        assert all("ERR_INTERNET_DISCONNECTED" in each for each in visit.complaints)
        visit.complaints.clear()

    def test_a_hidden_page_asks_for_nothing(self, visit: Visitor) -> None:
        """Until it is looked at again."""
        page = visit.open()
        page.clock.install()
        page.reload()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.headers.get("x-live", "")))
        hide = "Object.defineProperty(document, 'hidden', {get: () => %s, configurable: true});"
        change = "document.dispatchEvent(new Event('visibilitychange'))"
        page.evaluate(hide % "true" + change)
        page.clock.run_for(60_000)
        assert "1" not in asked
        with page.expect_response(lambda answer: answer.request.headers.get("x-live") == "1"):
            page.evaluate(hide % "false" + change)

    def test_the_list_follows_what_is_typed(self, visit: Visitor) -> None:
        """And the address with it, to be sent to somebody."""
        page = visit.open()
        page.get_by_label("Find").fill("vllm")
        expect(page.locator("#list tbody tr")).to_have_count(1)
        expect(page).to_have_url(re.compile(r"\?q=vllm$"))


class TestChart:
    def test_marks_lead_to_their_decision_by_keyboard(self, visit: Visitor, desk: Desk) -> None:
        """Each says what was decided and why, to the pointer and to a screen reader."""
        page = visit.open(HERE + "plain")
        mark = page.locator("#chart a").first
        said = mark.get_attribute("aria-label")
        assert said is not None
        assert re.search(r"\d\d:\d\d:\d\d UTC, 2 to 2, AlreadyThere: ", said)
        assert mark.locator("title").text_content() == said
        mark.focus()
        page.keyboard.press("Enter")
        focused = page.evaluate("document.activeElement.id")
        assert mark.get_attribute("href") == f"#{focused}"
        expect(page.locator(f"#{focused}")).to_contain_text("AlreadyThere")

    def test_shows_when_alerts_fired(self, visit: Visitor) -> None:
        """By name."""
        page = visit.open(HERE + "plain")
        expect(page.locator("#chart svg")).to_contain_text("Alert-stay")


class TestUntrusted:
    def test_what_alerts_say_is_text_and_only_http_is_a_link(self, visit: Visitor) -> None:
        """An alert's annotations are written by many."""
        page = visit.open(HERE + "plain")
        alerts = page.locator("#alerts")
        expect(alerts).to_contain_text("<b>hot</b>")
        expect(alerts.get_by_role("link", name="In Prometheus")).to_be_visible()
        expect(alerts.get_by_role("link", name="Runbook")).to_have_count(0)


class TestWithoutScript:
    def test_can_be_read_and_used(self, visit: Visitor, desk: Desk) -> None:
        """State, reasons, chart and forms are all in the page itself."""
        page = visit.open(HERE + "plain", java_script_enabled=False)
        expect(page.locator("#glance")).to_contain_text("AlreadyThere")
        expect(page.locator("#chart svg")).to_be_visible()
        expect(page.locator("#live")).to_contain_text("reload for news")
        form = unfold(page, "pause")
        form.get_by_label("Why").fill("no script")
        form.get_by_role("button").click()
        expect(page.locator("#overrides")).to_contain_text("no script")
        page.get_by_role("button", name="End now").click()
        expect(page.locator("#overrides")).to_contain_text("No override is in force.")
        assert desk.target("plain")["overrides"] == []


@pytest.mark.parametrize("look", ["light", "dark"])
def test_everybody_can_use_it(look: Any, visit: Visitor) -> None:
    """axe finds nothing wrong, with every fold open, at a desk and on a phone; nothing runs out at the side."""
    page = visit.open("/", color_scheme=look)
    found: dict[str, list[str]] = {}
    for path in ("/", HERE + "vllm", "/targets/inference/deployment/nosuch"):
        page.goto(visit.url + path)
        page.evaluate("for (const fold of document.querySelectorAll('details')) fold.open = true")
        found[f"{path} at a desk"] = faults(page)
        page.set_viewport_size({"width": 390, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        if look == "light":
            found[f"{path} on a phone"] = faults(page)
        page.set_viewport_size({"width": 1280, "height": 720})
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()
    found["signing in"] = faults(page)
    visit.complaints.clear()  # the browser's own note of the 404
    assert {where: what for where, what in found.items() if what} == {}
